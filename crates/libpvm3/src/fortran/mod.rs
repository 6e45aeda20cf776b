//! The Fortran interface (contract 3): each call is a thin layer over the C function of the same name.
//!
//! The calling convention is that of gfortran and f2c: names are in lower case with a trailing underscore, every
//! argument is passed by reference, the last argument receives the result, and the lengths of the CHARACTER arguments
//! follow after all other arguments, by value and in the same order. (Some compilers append two underscores, but only
//! to names that contain one; no name here does.)
//!
//! The library reads a length as an `int`: older compilers pass an `int`; newer compilers pass a `size_t`, and the
//! library reads the low half of it.
#![allow(clippy::too_many_arguments)] // the interface is given

mod data;
mod groups;
mod lists;
mod names;
mod numbers;
mod text;
