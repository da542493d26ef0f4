//! The concurrent shell under model checkers of threads: their platforms, a model that knows what each page must hold,
//! and the way from a run of threads back to a world. And a device that is far away, as GPUs are.
//!
//! Both platforms live in one binary with the real threads: the shell is generic over them, and no flag of the compiler
//! chooses.

pub mod far_platform;
pub mod lines;
pub mod loom_platform;
pub mod requests;
pub mod shuttle_platform;
pub mod stamp;

pub use far_platform::FarPlatform;
pub use loom_platform::LoomPlatform;
pub use shuttle_platform::ShuttlePlatform;
pub use stamp::StampModel;
