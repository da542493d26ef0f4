//! What the kernels were compiled to.

use core::fmt;

/// An architecture that there are cubins for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Compute capability 9.0: H100, H200.
    Sm90,
    /// Compute capability 12.x: RTX PRO 6000, GeForce 50.
    Sm120,
}

impl Arch {
    /// The architecture whose code a device of this compute capability runs: 9.0 alone, whose code is in part for `sm_90a`,
    /// and 12.x.
    pub const fn of(major: i32, minor: i32) -> Option<Arch> {
        match (major, minor) {
            (9, 0) => Some(Arch::Sm90),
            (12, _) => Some(Arch::Sm120),
            _ => None,
        }
    }

    /// As compilers name it.
    pub const fn name(self) -> &'static str {
        match self {
            Arch::Sm90 => "sm_90",
            Arch::Sm120 => "sm_120",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A source file of kernels, with its cubins: where `sm_90` has a way of its own, of another source.
#[derive(Debug)]
pub struct Image {
    /// Its name: mostly that of its file, without ending.
    pub name: &'static str,
    /// CUDA C++, without includes.
    pub source: &'static str,
    sm_90: &'static [u8],
    sm_120: &'static [u8],
}

impl Image {
    /// The code for an architecture.
    pub const fn cubin(&self, arch: Arch) -> &'static [u8] {
        match arch {
            Arch::Sm90 => self.sm_90,
            Arch::Sm120 => self.sm_120,
        }
    }
}

macro_rules! image {
    ($name:literal) => {
        image!($name, $name, concat!($name, ".sm_90"))
    };
    ($name:literal, $source:literal, $sm_90:expr) => {
        Image {
            name: $name,
            source: include_str!(concat!("../../cu/", $source, ".cu")),
            sm_90: include_bytes!(concat!("../../cubins/", $sm_90, ".cubin")),
            sm_120: include_bytes!(concat!("../../cubins/", $source, ".sm_120.cubin")),
        }
    };
}

/// Every image.
pub static IMAGES: [Image; 9] = [
    image!("attention_merge"),
    image!("index_k_write"),
    image!("index_logits", "index_logits", "index_logits.sm_90a"),
    image!("page_care"),
    image!("page_copy"),
    image!("select_sum"),
    image!("sparse_attention", "sparse_attention", "sparse_attention_wgmma.sm_90a"),
    image!("sparse_attention_few", "sparse_attention", "sparse_attention.sm_90"),
    image!("top_k"),
];

/// The logits for `sm_90` as they are for `sm_120`, with `mma.sync`, whose e4m3 operands `sm_90` emulates: to test that
/// way of the source where there is no such device. Slower than the other.
pub static LOGITS_PORTABLE_SM_90: &[u8] = include_bytes!("../../cubins/index_logits.portable.sm_90.cubin");

/// The attention for `sm_90` as it is for `sm_120`, with `mma.sync`.
pub static ATTENTION_PORTABLE_SM_90: &[u8] = include_bytes!("../../cubins/sparse_attention.sm_90.cubin");

/// The image of this name.
///
/// # Panics
///
/// If there is none.
pub fn image(name: &str) -> &'static Image {
    IMAGES.iter().find(|image| image.name == name).unwrap_or_else(|| panic!("there is no image {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ELF header's flags of a cubin: the architecture is in the second byte.
    fn architecture(cubin: &[u8]) -> u32 {
        u32::from_le_bytes(cubin[0x30..0x34].try_into().expect("four bytes")) >> 8 & 0xff
    }

    #[test]
    fn every_image_has_cubins_of_its_architectures() {
        for image in &IMAGES {
            for (arch, number) in [(Arch::Sm90, 90), (Arch::Sm120, 120)] {
                let cubin = image.cubin(arch);
                assert_eq!(&cubin[..4], b"\x7fELF", "{} for {arch}", image.name);
                assert_eq!(architecture(cubin), number, "{} for {arch}", image.name);
            }
        }
        assert_eq!(architecture(LOGITS_PORTABLE_SM_90), 90);
    }

    #[test]
    fn sources_include_nothing_and_every_cubin_has_its_kernels() {
        for image in &IMAGES {
            assert!(!image.source.contains("#include"), "{}", image.name);
            let kernels = image.source.split("extern \"C\" __global__").skip(1);
            let names: Vec<&str> =
                kernels.filter_map(|rest| rest.split_once(") ")?.1.split_once('(')).map(|x| x.0).collect();
            assert!(!names.is_empty(), "{}", image.name);
            for name in names {
                let needle = format!(".text.{name}\0");
                for arch in [Arch::Sm90, Arch::Sm120] {
                    let found = image.cubin(arch).windows(needle.len()).any(|bytes| bytes == needle.as_bytes());
                    assert!(found, "{}: {arch} has no kernel {name}", image.name);
                }
            }
        }
    }

    #[test]
    fn code_runs_on_devices_that_know_its_instructions() {
        assert_eq!(
            [(9, 0), (12, 0), (12, 1), (8, 9), (9, 1), (10, 0)].map(|(major, minor)| Arch::of(major, minor)),
            [Some(Arch::Sm90), Some(Arch::Sm120), Some(Arch::Sm120), None, None, None]
        );
    }
}
