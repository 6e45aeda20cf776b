//! Calls about groups.
use super::names::named;
use super::text::c_text;
use crate::groups::collective::{pvm_gather, pvm_reduce, pvm_scatter};
use crate::groups::operators::Combine;
use crate::groups::operators::{PvmMax, PvmMin, PvmProduct, PvmSum};
use crate::groups::{
    pvm_barrier, pvm_bcast, pvm_freezegroup, pvm_getinst, pvm_gettid, pvm_gsize, pvm_joingroup, pvm_lanbarr,
    pvm_lvgroup,
};
use crate::memory::store;
use std::ffi::{c_char, c_int, c_void};

named! {
    pvmfjoingroup_(name) is pvm_joingroup;
    pvmfjoingrp_(name) is pvm_joingroup;
    pvmflvgroup_(name) is pvm_lvgroup;
    pvmflvgrp_(name) is pvm_lvgroup;
    pvmfgsize_(name) is pvm_gsize;
    pvmfgetinst_(name, tid) is pvm_getinst;
    pvmfgettid_(name, instance) is pvm_gettid;
    pvmfbarrier_(name, count) is pvm_barrier;
    pvmflanbarr_(name, count) is pvm_lanbarr;
    pvmfbcast_(name, tag) is pvm_bcast;
    pvmffreezegroup_(name, count) is pvm_freezegroup;
    pvmffrzgrp_(name, count) is pvm_freezegroup;
}

macro_rules! exchanges {
    ($($name:ident is $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            result: *mut c_void,
            data: *mut c_void,
            count: *const c_int,
            what: *const c_int,
            tag: *const c_int,
            group: *const c_char,
            root: *const c_int,
            info: *mut c_int,
            group_length: c_int,
        ) {
            // SAFETY: arrays as the C function expects them, numbers, a name and a place for the result, as the caller
            // promises.
            unsafe {
                let group = c_text(group, group_length);
                store(info, $function(result, data, *count, *what, *tag, group.as_ptr(), *root));
            }
        }
    )*};
}

exchanges! {
    pvmfgather_ is pvm_gather;
    pvmfscatter_ is pvm_scatter;
}

/// The library calls the user's function as it calls a function of a C program: all arguments are passed by reference,
/// as Fortran expects.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvmfreduce_(
    combine: Option<Combine>,
    data: *mut c_void,
    count: *const c_int,
    what: *const c_int,
    tag: *const c_int,
    group: *const c_char,
    root: *const c_int,
    info: *mut c_int,
    group_length: c_int,
) {
    // SAFETY: an array, numbers, a name and a place for the result, as the caller promises.
    unsafe {
        let group = c_text(group, group_length);
        let combine = combine.map(as_in_c);
        store(info, pvm_reduce(combine, data, *count, *what, *tag, group.as_ptr(), *root));
    }
}

/// The operators under Fortran's names.
macro_rules! operators {
    ($($name:ident is $function:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            what: *const c_int,
            x: *mut c_void,
            y: *mut c_void,
            count: *const c_int,
            info: *mut c_int,
        ) {
            // SAFETY: as promised by the caller.
            unsafe { $function(what, x, y, count, info) }
        }
    )*

        /// Replaces the Fortran function of a predefined operator by the C function, which `pvm_reduce` recognizes;
        /// returns any other function unchanged.
        fn as_in_c(combine: Combine) -> Combine {
            let ours: [(Combine, Combine); 4] = [$(($name, $function)),*];
            let found = ours.into_iter().find(|(name, _)| std::ptr::fn_addr_eq(*name, combine));
            found.map_or(combine, |(_, function)| function)
        }
    };
}

operators! {
    pvmmax_ is PvmMax;
    pvmmin_ is PvmMin;
    pvmsum_ is PvmSum;
    pvmproduct_ is PvmProduct;
}
