//! Compiles kernels for devices that there are no cubins for.
#![allow(unsafe_code)]

use std::ffi::CString;

use cudarc::nvrtc::sys::{self, nvrtcResult};
use kvweft_kernels::gpu::Image;

/// Whether the compiler's library is there.
pub(crate) fn is_present() -> bool {
    // SAFETY: this loads the library, whose initialisers may run anywhere, and unloads it.
    unsafe { sys::is_culib_present() }
}

/// The code of an image for an architecture such as `sm_80`.
///
/// # Errors
///
/// What the compiler says.
pub(crate) fn compile(image: &Image, architecture: &str) -> Result<Vec<u8>, String> {
    if !is_present() {
        return Err("libnvrtc.so was not found; it comes with the CUDA toolkit".to_owned());
    }
    let text = CString::new(image.source).map_err(|error| error.to_string())?;
    let name = CString::new(format!("{}.cu", image.name)).map_err(|error| error.to_string())?;
    let mut program = core::ptr::null_mut();
    // SAFETY: both are C strings that live during the call, and there are no headers.
    let code = unsafe {
        sys::nvrtcCreateProgram(&mut program, text.as_ptr(), name.as_ptr(), 0, core::ptr::null(), core::ptr::null())
    };
    check("nvrtcCreateProgram", code)?;
    let result = compile_program(program, architecture);
    // SAFETY: created above, and not used after this.
    let _ = unsafe { sys::nvrtcDestroyProgram(&mut program) };
    result
}

fn compile_program(program: sys::nvrtcProgram, architecture: &str) -> Result<Vec<u8>, String> {
    let option = CString::new(format!("--gpu-architecture={architecture}")).map_err(|error| error.to_string())?;
    let standard = c"--std=c++17";
    let options = [option.as_ptr(), standard.as_ptr()];
    // SAFETY: the program exists, and options live during the call.
    let code = unsafe { sys::nvrtcCompileProgram(program, options.len() as i32, options.as_ptr()) };
    if code != nvrtcResult::NVRTC_SUCCESS {
        return Err(format!("nvrtcCompileProgram returned {code:?}: {}", log(program)));
    }
    let mut size = 0;
    // SAFETY: the program was compiled.
    check("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(program, &mut size) })?;
    let mut cubin = vec![0u8; size];
    // SAFETY: there is room for as many bytes as it said.
    check("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(program, cubin.as_mut_ptr().cast()) })?;
    Ok(cubin)
}

fn log(program: sys::nvrtcProgram) -> String {
    let mut size = 0;
    // SAFETY: the program exists.
    if unsafe { sys::nvrtcGetProgramLogSize(program, &mut size) } != nvrtcResult::NVRTC_SUCCESS {
        return String::new();
    }
    let mut text = vec![0u8; size];
    // SAFETY: there is room for as many bytes as it said.
    let _ = unsafe { sys::nvrtcGetProgramLog(program, text.as_mut_ptr().cast()) };
    String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned()
}

fn check(call: &str, code: nvrtcResult) -> Result<(), String> {
    if code == nvrtcResult::NVRTC_SUCCESS { Ok(()) } else { Err(format!("{call} returned {code:?}")) }
}
