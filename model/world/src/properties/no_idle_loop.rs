//! `no-idle-loop`: the system does not go round in circles by its own steps.

use super::PropertyInfo;

/// What is known of this property.
pub const INFO: PropertyInfo = PropertyInfo {
    name: "no-idle-loop",
    liveness: true,
    says: "the system does not go round in circles by its own steps under a fair scheduler, short of its goal",
    seen_in: "vllm #49674",
};

// Judged by the explorer, which sees the cycles of the state graph; its tests feed it one.
