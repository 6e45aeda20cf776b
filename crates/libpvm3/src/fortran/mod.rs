//! The Fortran interface (contract 3): each call is thin over the C function of the same name.
//!
//! The convention is that of gfortran and of f2c: names in lower case with an underscore behind,
//! every argument by reference, results through the last argument, and the lengths of CHARACTER
//! arguments by value behind all others, in their order. (Compilers that put two underscores behind
//! names do so where a name has an underscore inside; none here has one.)
//!
//! A length is read as an `int`: older compilers pass no more, and newer ones pass a `size_t` whose
//! low half it is.
#![allow(clippy::too_many_arguments)] // the calls are what they are

mod data;
mod groups;
mod lists;
mod names;
mod numbers;
mod text;

pub use lists::Cursors;
