//! Enumerations whose values have a name in files.

macro_rules! choices {
    ($($(#[$doc:meta])* pub enum $name:ident { $($(#[$of:meta])* $variant:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$of])* $variant),+ }

        impl $name {
            /// The names as written in a file, in the order of the variants.
            pub const NAMES: &'static [&'static str] = &[$($text),+];

            /// The name as written in a file.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),+ }
            }

            /// The value of that name.
            pub fn from_name(name: &str) -> Option<$name> {
                match name { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    )+};
}

choices! {
    /// How the numbers of a component are stored.
    pub enum Dtype {
        /// 8-bit floats with scales.
        Fp8 = "fp8",
        /// 16-bit brain floats without scales.
        Bf16 = "bf16",
        /// 4-bit floats with scales.
        Fp4 = "fp4",
    }

    /// What a layer keeps of a token.
    pub enum Component {
        /// Latent keys and values that attention reads.
        Kv = "kv",
        /// Keys that the sparse indexer scores.
        IndexK = "index-k",
    }

    /// Where the scales of a component lie in a page.
    pub enum Scale {
        /// There are none.
        None = "none",
        /// In one section behind all entries of the page.
        PerPage = "per-page",
        /// In each entry's row.
        PerRow = "per-row",
    }

    /// Which engines there are.
    pub enum Roles {
        /// One engine prefills and decodes.
        Together = "together",
        /// A prefill engine sends to a decode engine.
        Split = "split",
    }

    /// One engine of a split world.
    pub enum Side {
        /// The engine that prefills.
        Prefill = "prefill",
        /// The engine that decodes.
        Decode = "decode",
    }

    /// When a page is copied to the host tier.
    pub enum WritePolicy {
        /// Never.
        Off = "off",
        /// As soon as it is complete.
        Through = "through",
        /// When it is evicted from the device.
        Back = "back",
    }

    /// How finely copies and sends are cut into steps.
    pub enum Grain {
        /// A begin and an end per layer and component.
        Default = "default",
        /// Cell by cell.
        Finest = "finest",
        /// One step a copy; hides the layer bugs.
        Atomic = "atomic",
    }

    /// What the explorer must find.
    pub enum Verdict {
        /// No property is violated.
        Holds = "holds",
        /// Some are.
        Violated = "violated",
    }

    /// The format of a request log.
    pub enum LogFormat {
        /// Mooncake's request traces: one request a line, global prefix hashes.
        Mooncake = "mooncake",
        /// Agent sessions: one session a line, block ids local to it.
        Sessions = "sessions",
    }
}
