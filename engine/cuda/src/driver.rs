//! Calls of the driver whose result is an error or nothing.

use cudarc::driver::sys::CUresult;

use crate::error::CudaError;

/// An error unless the call succeeded.
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<(), CudaError> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(CudaError::Driver { call, code }),
    }
}

/// Calls a function of the driver and returns the error of this crate.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {
        $crate::driver::check(stringify!($function), cudarc::driver::sys::$function($($argument),*))
    };
}
pub(crate) use call;
