//! The ready-made functions for `pvm_reduce`: `x` becomes the combination of `x` and `y`, item by
//! item.
use pvm_core::codes::Code;
use pvm_task::Kind;
use std::ffi::{c_int, c_void};

/// A complex number: real and imaginary part.
#[repr(C)]
#[derive(Clone, Copy)]
struct Complex<T>(T, T);

/// Types that can be combined.
trait Number: Copy {
    fn larger(x: Self, y: Self) -> Self;
    fn smaller(x: Self, y: Self) -> Self;
    fn sum(x: Self, y: Self) -> Self;
    fn product(x: Self, y: Self) -> Self;
}

macro_rules! number {
    ($type:ty, $sum:expr, $product:expr) => {
        impl Number for $type {
            fn larger(x: Self, y: Self) -> Self {
                if y > x { y } else { x }
            }
            fn smaller(x: Self, y: Self) -> Self {
                if y < x { y } else { x }
            }
            fn sum(x: Self, y: Self) -> Self {
                $sum(x, y)
            }
            fn product(x: Self, y: Self) -> Self {
                $product(x, y)
            }
        }
    };
}

number!(i8, i8::wrapping_add, i8::wrapping_mul);
number!(i16, i16::wrapping_add, i16::wrapping_mul);
number!(i32, i32::wrapping_add, i32::wrapping_mul);
number!(isize, isize::wrapping_add, isize::wrapping_mul);
number!(f32, |x: f32, y: f32| x + y, |x: f32, y: f32| x * y);
number!(f64, |x: f64, y: f64| x + y, |x: f64, y: f64| x * y);

/// Complex numbers are compared by modulus; of two that are equal in that `x` stays.
macro_rules! complex_number {
    ($type:ty) => {
        impl Complex<$type> {
            fn square(self) -> f64 {
                let (real, imaginary) = (f64::from(self.0), f64::from(self.1));
                real * real + imaginary * imaginary
            }
        }
        impl Number for Complex<$type> {
            fn larger(x: Self, y: Self) -> Self {
                if y.square() > x.square() { y } else { x }
            }
            fn smaller(x: Self, y: Self) -> Self {
                if y.square() < x.square() { y } else { x }
            }
            fn sum(x: Self, y: Self) -> Self {
                Complex(x.0 + y.0, x.1 + y.1)
            }
            fn product(x: Self, y: Self) -> Self {
                Complex(x.0 * y.0 - x.1 * y.1, x.0 * y.1 + x.1 * y.0)
            }
        }
    };
}

complex_number!(f32);
complex_number!(f64);

/// # Safety
/// `x` and `y` point to `count` numbers each; they may be the same.
#[inline(always)]
unsafe fn each<T: Number>(x: *mut c_void, y: *const c_void, count: usize, combine: impl Fn(T, T) -> T) {
    let (x, y) = (x.cast::<T>(), y.cast::<T>());
    for index in 0..count {
        // SAFETY: as promised by the caller.
        unsafe { x.add(index).write(combine(x.add(index).read(), y.add(index).read())) }
    }
}

macro_rules! operator {
    ($name:ident, $combine:ident, $bytes:expr) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)] // the name is PVM's
        pub unsafe extern "C" fn $name(
            data_type: *const c_int,
            x: *mut c_void,
            y: *mut c_void,
            count: *const c_int,
            info: *mut c_int,
        ) {
            // SAFETY: the caller of the interface gives places of numbers, and so many of them.
            unsafe {
                let count = usize::try_from(*count).unwrap_or(0);
                *info = 0;
                match Kind::from_number(*data_type) {
                    Some(Kind::Byte) if $bytes => each::<i8>(x, y, count, Number::$combine),
                    Some(Kind::Short) => each::<i16>(x, y, count, Number::$combine),
                    Some(Kind::Int) => each::<i32>(x, y, count, Number::$combine),
                    Some(Kind::Long) => each::<isize>(x, y, count, Number::$combine),
                    Some(Kind::Float) => each::<f32>(x, y, count, Number::$combine),
                    Some(Kind::Double) => each::<f64>(x, y, count, Number::$combine),
                    Some(Kind::Cplx) => each::<Complex<f32>>(x, y, count, Number::$combine),
                    Some(Kind::Dcplx) => each::<Complex<f64>>(x, y, count, Number::$combine),
                    _ => *info = Code::BadParam.number(),
                }
            }
        }
    };
}

operator!(PvmMax, larger, true);
operator!(PvmMin, smaller, true);
operator!(PvmSum, sum, false);
operator!(PvmProduct, product, false);
