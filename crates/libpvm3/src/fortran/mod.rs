//! The Fortran interface (contract 3): each call is a thin layer over the C function of the same name.
//!
//! The calling convention is that of gfortran and f2c: names in lower case with a trailing underscore, every
//! argument by reference, results in the last argument, and the lengths of CHARACTER arguments by value behind all
//! others, in their order. (Compilers that append two underscores do so only to names with an underscore; there are
//! none here.)
//!
//! A length is read as an `int`: older compilers pass one, and newer ones pass a `size_t`, whose low half is read.
#![allow(clippy::too_many_arguments)] // the interface is given

mod data;
mod groups;
mod lists;
mod names;
mod numbers;
mod text;

pub use lists::Cursors;
