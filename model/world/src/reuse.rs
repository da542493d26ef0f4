//! Cloning into a value that is there already, without giving its memory back first. The explorer does this once a step.

/// `Clone` whose `clone_from` goes field by field; the derived one throws the old value away.
macro_rules! clone_in_place {
    ($name:ident $(<$param:ident>)? { $($field:ident),* $(,)? }) => {
        impl $(<$param: Clone>)? Clone for $name $(<$param>)? {
            fn clone(&self) -> Self {
                $name { $($field: self.$field.clone()),* }
            }

            fn clone_from(&mut self, source: &Self) {
                $(self.$field.clone_from(&source.$field);)*
            }
        }
    };
}

pub(crate) use clone_in_place;
