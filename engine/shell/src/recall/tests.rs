//! The model on simulated pages.

mod damage;
mod pages;
mod right;
