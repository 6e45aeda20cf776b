//! The operators of the library for `pvm_reduce`: `x` becomes the combination of `x` and `y`, item by item.
use pvm_core::codes::Code;
use pvm_task::Kind;
use std::ffi::{c_int, c_void};

/// A user's function that combines two arrays.
pub type Combine = unsafe extern "C" fn(*const c_int, *mut c_void, *mut c_void, *const c_int, *mut c_int);

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

/// Complex numbers are compared by modulus; if both have the same modulus, the result is `x`.
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

/// Combines `count` numbers at `x` with those at `y`; the result is at `x`.
///
/// # Safety
/// `count` numbers can be read at both addresses and written at `x`. The addresses may be equal. The numbers at `y`
/// need no alignment, and may change during the call: any bit pattern is a valid number.
pub type Combiner = unsafe fn(x: *mut c_void, y: *const c_void, count: usize);

/// # Safety
/// As for a [`Combiner`].
#[inline(always)]
unsafe fn each<T: Number>(x: *mut c_void, y: *const c_void, count: usize, combine: impl Fn(T, T) -> T) {
    let (x, y) = (x.cast::<T>(), y.cast::<T>());
    for index in 0..count {
        // SAFETY: as promised by the caller.
        unsafe { x.add(index).write(combine(x.add(index).read(), y.add(index).read_unaligned())) }
    }
}

macro_rules! each {
    ($type:ty, $combine:ident) => {
        // SAFETY: as promised by the combiner's caller.
        |x, y, count| unsafe { each::<$type>(x, y, count, Number::$combine) }
    };
}

/// Defines a public operator and the combiner for each kind of number. `$bytes`: whether the operator accepts bytes.
macro_rules! operator {
    ($name:ident, $of_kind:ident, $combine:ident, $bytes:expr) => {
        fn $of_kind(kind: Kind) -> Option<Combiner> {
            Some(match kind {
                Kind::Byte if $bytes => each!(i8, $combine),
                Kind::Short => each!(i16, $combine),
                Kind::Int => each!(i32, $combine),
                Kind::Long => each!(isize, $combine),
                Kind::Float => each!(f32, $combine),
                Kind::Double => each!(f64, $combine),
                Kind::Cplx => each!(Complex<f32>, $combine),
                Kind::Dcplx => each!(Complex<f64>, $combine),
                _ => return None,
            })
        }

        #[unsafe(no_mangle)]
        #[allow(non_snake_case)] // the name is PVM's
        pub unsafe extern "C" fn $name(
            data_type: *const c_int,
            x: *mut c_void,
            y: *mut c_void,
            count: *const c_int,
            info: *mut c_int,
        ) {
            // SAFETY: the caller of the interface passes two arrays of that number of items.
            unsafe {
                let count = usize::try_from(*count).unwrap_or(0);
                *info = match Kind::from_number(*data_type).and_then($of_kind) {
                    Some(combine) => {
                        combine(x, y, count);
                        0
                    }
                    None => Code::BadParam.number(),
                };
            }
        }
    };
}

operator!(PvmMax, maximum, larger, true);
operator!(PvmMin, minimum, smaller, true);
operator!(PvmSum, sum, sum, false);
operator!(PvmProduct, product, product, false);

/// Returns the combiner of a function that was passed to `pvm_reduce`, if that function is an operator of the library
/// and supports the type.
pub fn combiner(function: Combine, data_type: c_int) -> Option<Combiner> {
    type OfKind = fn(Kind) -> Option<Combiner>;
    let ours: [(Combine, OfKind); 4] = [(PvmMax, maximum), (PvmMin, minimum), (PvmSum, sum), (PvmProduct, product)];
    let (_, of_kind) = ours.into_iter().find(|(operator, _)| std::ptr::fn_addr_eq(*operator, function))?;
    Kind::from_number(data_type).and_then(of_kind)
}

#[cfg(test)]
#[path = "operators_tests.rs"]
mod tests;
