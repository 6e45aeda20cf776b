//! Groups, whose name comes first.
use super::names::named;
use super::text::c_text;
use crate::groups::{pvm_barrier, pvm_bcast, pvm_getinst, pvm_gettid, pvm_gsize, pvm_joingroup, pvm_lvgroup};
use crate::memory::store;
use std::ffi::{c_char, c_int};

named! {
    pvmfjoingroup_(name) is pvm_joingroup;
    pvmfjoingrp_(name) is pvm_joingroup;
    pvmflvgroup_(name) is pvm_lvgroup;
    pvmflvgrp_(name) is pvm_lvgroup;
    pvmfgsize_(name) is pvm_gsize;
    pvmfgetinst_(name, tid) is pvm_getinst;
    pvmfgettid_(name, instance) is pvm_gettid;
    pvmfbarrier_(name, count) is pvm_barrier;
    pvmfbcast_(name, tag) is pvm_bcast;
}
