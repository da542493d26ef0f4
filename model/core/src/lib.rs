//! kvweft.
