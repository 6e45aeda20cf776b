//! A provider that exists in memory only and asks for what a test wants: each mode of memory registration, contexts,
//! busy queues. It writes a complaint for everything that a caller does and that a provider of that mode would not bear.
use super::super::abi::*;
use super::super::library::{Functions, Library};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

/// What the provider asks for and offers.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    pub version: (u32, u32),
    pub registration: c_int,
    pub mode: u64,
    pub inject_bytes: usize,
    pub key_bytes: usize,
    /// The most receives that can be posted.
    pub receives: usize,
    pub message_bytes_max: usize,
    /// One in this number of operations finds the queue full; 0 for none.
    pub busy_every: u64,
    pub has_descriptor: bool,
    /// Whether the name is that of a provider above datagrams, and long reads or two at a time are not borne.
    pub is_above_datagrams: bool,
}

impl Traits {
    pub const PLAIN: Traits = Traits {
        version: (1, 17),
        registration: 0,
        mode: 0,
        inject_bytes: 0,
        key_bytes: 8,
        receives: 64,
        message_bytes_max: 1 << 30,
        busy_every: 0,
        has_descriptor: false,
        is_above_datagrams: false,
    };
    pub const ABOVE_DATAGRAMS: Traits = Traits { is_above_datagrams: true, ..Traits::PLAIN };

    /// Returns the name of the provider.
    pub fn name(self) -> &'static CStr {
        if self.is_above_datagrams { c"feigned;ofi_rxd" } else { c"feigned" }
    }
}

/// The longest read that is borne above datagrams, in bytes.
const DATAGRAMS_READ_BYTES_MAX: usize = 32 << 10;

struct Region {
    start: usize,
    bytes: usize,
    access: u64,
    key: u64,
    /// The endpoint to which the region is bound, once it is enabled.
    bound: Option<usize>,
    is_enabled: bool,
}

/// An operation that has been accepted and not yet been carried out.
enum Operation {
    Send { to: u64, start: usize, bytes: usize, context: usize },
    Injected { to: u64, data: Vec<u8> },
    Read { from: u64, start: usize, bytes: usize, address: u64, key: u64, context: usize },
}

#[derive(Default)]
struct End {
    /// Buffers: start, length, context.
    posted: VecDeque<(usize, usize, usize)>,
    operations: VecDeque<Operation>,
    /// Completions: context, length, and the error number if the operation failed.
    completions: VecDeque<(usize, usize, c_int)>,
}

struct World {
    traits: Traits,
    calls: u64,
    ends: BTreeMap<u64, End>,
    /// By the address of the object.
    regions: BTreeMap<usize, Region>,
    open: usize,
    complaints: Vec<String>,
    /// Messages that found no posted buffer.
    unbuffered: usize,
}

thread_local! {
    static WORLD: RefCell<World> = const {
        RefCell::new(World {
            traits: Traits::PLAIN,
            calls: 0,
            ends: BTreeMap::new(),
            regions: BTreeMap::new(),
            open: 0,
            complaints: Vec::new(),
            unbuffered: 0,
        })
    };
}

fn with<T>(action: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with(|world| action(&mut world.borrow_mut()))
}

/// Returns a library with this provider alone. It belongs to the calling thread.
pub fn library(traits: Traits) -> Result<Library, crate::fabric::LoadError> {
    with(|world| world.traits = traits);
    Library::new(Functions { getinfo, freeinfo, dupinfo, fabric, version, strerror })
}

/// Returns the complaints so far, and how many objects are open.
pub fn complaints() -> (Vec<String>, usize) {
    with(|world| (std::mem::take(&mut world.complaints), world.open))
}

/// Returns how many messages found no buffer.
pub fn unbuffered() -> usize {
    with(|world| world.unbuffered)
}

/// Makes the endpoint with this address vanish, as if its process had been killed.
pub fn vanish(address: &[u8]) {
    let number = u64::from_ne_bytes(address.try_into().expect("addresses have 8 bytes"));
    with(|world| world.ends.remove(&number));
}

impl World {
    fn complain(&mut self, text: impl Into<String>) {
        self.complaints.push(text.into());
    }

    fn is_busy(&mut self) -> bool {
        self.calls += 1;
        self.traits.busy_every != 0 && self.calls % self.traits.busy_every == 0
    }

    /// Checks that memory of an operation is named as the mode wants it, and that its context can be written to.
    fn check_local(&mut self, start: usize, bytes: usize, description: *mut c_void, access: u64, context: *mut c_void) {
        if self.traits.registration & FI_MR_LOCAL != 0 {
            let bound = self.traits.registration & FI_MR_ENDPOINT != 0;
            let fits = self.regions.get(&(description as usize)).is_some_and(|region| {
                region.start <= start
                    && start + bytes <= region.start + region.bytes
                    && region.access & access != 0
                    && (region.is_enabled || !bound)
            });
            if !fits {
                self.complain(format!("memory is not registered for access {access:#x}"));
            }
        }
        let words = match self.traits.mode {
            mode if mode & FI_CONTEXT2 != 0 => 8,
            mode if mode & FI_CONTEXT != 0 => 4,
            _ => 0,
        };
        // SAFETY: the mode says that the caller leaves this many words to the provider.
        unsafe { ptr::write_bytes(context.cast::<usize>(), 0xa5, words) };
    }

    /// Carries out what was accepted from an endpoint.
    fn progress(&mut self, number: u64) {
        while let Some(operation) = self.ends.get_mut(&number).and_then(|end| end.operations.pop_front()) {
            let completion = match operation {
                Operation::Injected { to, data } => {
                    self.arrive(to, &data);
                    continue;
                }
                Operation::Send { to, start, bytes, context } => {
                    // SAFETY: the caller keeps the buffer until the completion.
                    let data = unsafe { std::slice::from_raw_parts(start as *const u8, bytes) }.to_vec();
                    (context, bytes, if self.arrive(to, &data) { 0 } else { libc::EHOSTUNREACH })
                }
                Operation::Read { from, start, bytes, address, key, context } => {
                    (context, bytes, self.read(from, start, bytes, address, key))
                }
            };
            if let Some(end) = self.ends.get_mut(&number) {
                end.completions.push_back(completion);
            }
        }
    }

    fn arrive(&mut self, to: u64, data: &[u8]) -> bool {
        let Some(end) = self.ends.get_mut(&to) else { return false };
        let Some((start, bytes, context)) = end.posted.pop_front() else {
            self.unbuffered += 1;
            return true;
        };
        if data.len() > bytes {
            end.completions.push_back((context, 0, 265));
            return true;
        }
        // SAFETY: the receiver keeps the buffer until the completion.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), start as *mut u8, data.len()) };
        end.completions.push_back((context, data.len(), 0));
        true
    }

    fn read(&mut self, from: u64, start: usize, bytes: usize, address: u64, key: u64) -> c_int {
        if !self.ends.contains_key(&from) {
            return libc::EHOSTUNREACH;
        }
        let is_bound = self.traits.registration & FI_MR_ENDPOINT != 0;
        let Some(region) = self.regions.values().find(|region| region.key == key) else { return libc::EACCES };
        let is_readable = region.access & FI_REMOTE_READ != 0 && (region.is_enabled || !is_bound);
        let base = if self.traits.registration & FI_MR_VIRT_ADDR != 0 { region.start as u64 } else { 0 };
        let fits = |offset: u64| offset.checked_add(bytes as u64).is_some_and(|end| end <= region.bytes as u64);
        match address.checked_sub(base).filter(|offset| is_readable && fits(*offset)) {
            Some(offset) => {
                let source = region.start + offset as usize;
                // SAFETY: the owner of the region and the reader keep their memory until registration and read end.
                unsafe { ptr::copy_nonoverlapping(source as *const u8, start as *mut u8, bytes) };
                0
            }
            None => libc::EACCES,
        }
    }
}

fn leak<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Returns the beginning of a new object.
fn fid(ops: &'static OpsFid) -> Fid {
    with(|world| world.open += 1);
    Fid { class: 0, context: ptr::null_mut(), ops }
}

unsafe extern "C" fn free<T>(object: *mut Fid) -> c_int {
    with(|world| world.open -= 1);
    // SAFETY: the object was made by `leak`, as this type.
    drop(unsafe { Box::from_raw(object.cast::<T>()) });
    0
}

/// Returns an empty table.
fn no_functions<T>() -> T {
    // SAFETY: called for tables only: null is a value of each member, and 0 one of the size.
    unsafe { std::mem::zeroed() }
}

macro_rules! ops {
    ($kind:ident { $($field:ident: $value:expr),* $(,)? }) => {{
        let mut table: $kind = no_functions();
        table.size = size_of::<$kind>();
        $(table.$field = $value;)*
        &*Box::leak(Box::new(table))
    }};
}

unsafe extern "C" fn version() -> u32 {
    let (major, minor) = with(|world| world.traits.version);
    super::super::abi::version(major, minor)
}

unsafe extern "C" fn strerror(number: c_int) -> *const c_char {
    let text: &CStr = match number {
        libc::EACCES => c"Permission denied",
        libc::EHOSTUNREACH => c"No route to host",
        _ => c"Other error",
    };
    text.as_ptr()
}

unsafe extern "C" fn dupinfo(info: *const Info) -> *mut Info {
    // SAFETY: zeroes are a value of all these structures; a given structure is whole.
    unsafe {
        let copy = leak(std::mem::zeroed::<Info>());
        (*copy).tx_attr = leak(std::mem::zeroed());
        (*copy).rx_attr = leak(std::mem::zeroed());
        (*copy).ep_attr = leak(std::mem::zeroed());
        (*copy).domain_attr = leak(std::mem::zeroed());
        (*copy).fabric_attr = leak(std::mem::zeroed());
        if !info.is_null() {
            (*copy).caps = (*info).caps;
            (*copy).mode = (*info).mode;
            ptr::copy_nonoverlapping((*info).tx_attr, (*copy).tx_attr, 1);
            ptr::copy_nonoverlapping((*info).rx_attr, (*copy).rx_attr, 1);
            ptr::copy_nonoverlapping((*info).ep_attr, (*copy).ep_attr, 1);
            ptr::copy_nonoverlapping((*info).domain_attr, (*copy).domain_attr, 1);
            ptr::copy_nonoverlapping((*info).fabric_attr, (*copy).fabric_attr, 1);
            (*(*copy).fabric_attr).prov_name = libc::strdup((*(*info).fabric_attr).prov_name);
        }
        copy
    }
}

unsafe extern "C" fn freeinfo(info: *mut Info) {
    // SAFETY: the structure and its parts were made by `dupinfo`.
    unsafe {
        libc::free((*(*info).fabric_attr).prov_name.cast());
        drop(Box::from_raw((*info).tx_attr));
        drop(Box::from_raw((*info).rx_attr));
        drop(Box::from_raw((*info).ep_attr));
        drop(Box::from_raw((*info).domain_attr));
        drop(Box::from_raw((*info).fabric_attr));
        drop(Box::from_raw(info));
    }
}

unsafe extern "C" fn getinfo(
    _version: u32,
    _node: *const c_char,
    _service: *const c_char,
    _flags: u64,
    hints: *const Info,
    found: *mut *mut Info,
) -> c_int {
    let traits = with(|world| world.traits);
    // SAFETY: hints are whole, as libfabric demands it.
    unsafe {
        let wants = &*(*hints).domain_attr;
        let name = (*(*hints).fabric_attr).prov_name;
        let other_name = !name.is_null() && CStr::from_ptr(name) != traits.name();
        if traits.registration & !wants.mr_mode != 0 || traits.mode & !(*hints).mode != 0 || other_name {
            return -libc::ENODATA;
        }
        let info = dupinfo(ptr::null());
        (*info).mode = traits.mode;
        (*(*info).tx_attr).inject_size = traits.inject_bytes;
        (*(*info).tx_attr).size = 32;
        (*(*info).rx_attr).size = traits.receives;
        (*(*info).ep_attr).max_msg_size = traits.message_bytes_max;
        (*(*info).domain_attr).mr_mode = traits.registration;
        (*(*info).domain_attr).mr_key_size = traits.key_bytes;
        (*(*info).fabric_attr).prov_name = libc::strdup(traits.name().as_ptr());
        *found = info;
    }
    0
}

unsafe extern "C" fn fabric(_attr: *mut FabricAttr, made: *mut *mut FidFabric, _context: *mut c_void) -> c_int {
    let object = FidFabric {
        fid: fid(ops!(OpsFid { close: Some(free::<FidFabric>) })),
        ops: ops!(OpsFabric { domain: Some(domain), trywait: Some(trywait) }),
    };
    // SAFETY: the caller gives a place for the object.
    unsafe { *made = leak(object) };
    0
}

unsafe extern "C" fn domain(
    _fabric: *mut FidFabric,
    _info: *mut Info,
    made: *mut *mut FidDomain,
    _context: *mut c_void,
) -> c_int {
    let object = FidDomain {
        fid: fid(ops!(OpsFid { close: Some(free::<FidDomain>) })),
        ops: ops!(OpsDomain { av_open: Some(av_open), cq_open: Some(cq_open), endpoint: Some(endpoint) }),
        mr: ops!(OpsMr { reg: Some(register) }),
    };
    // SAFETY: the caller gives a place for the object.
    unsafe { *made = leak(object) };
    0
}

/// A queue, and later the endpoint that is bound to it.
#[repr(C)]
struct Queue {
    object: FidCq,
    end: u64,
    descriptor: c_int,
}

#[repr(C)]
struct Endpoint {
    object: FidEp,
    number: u64,
}

unsafe extern "C" fn av_open(
    _domain: *mut FidDomain,
    _attr: *mut AvAttr,
    made: *mut *mut FidAv,
    _context: *mut c_void,
) -> c_int {
    let object =
        FidAv { fid: fid(ops!(OpsFid { close: Some(free::<FidAv>) })), ops: ops!(OpsAv { insert: Some(insert) }) };
    // SAFETY: the caller gives a place for the object.
    unsafe { *made = leak(object) };
    0
}

unsafe extern "C" fn insert(
    _av: *mut FidAv,
    address: *const c_void,
    _count: usize,
    made: *mut u64,
    _flags: u64,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives 8 bytes and a place for the number.
    unsafe { *made = address.cast::<u64>().read_unaligned() };
    1
}

unsafe extern "C" fn cq_open(
    _domain: *mut FidDomain,
    attr: *mut CqAttr,
    made: *mut *mut FidCq,
    _context: *mut c_void,
) -> c_int {
    // SAFETY: the caller gives attributes and a place for the object.
    unsafe {
        let wants_descriptor = (*attr).wait_obj == FI_WAIT_FD;
        if wants_descriptor && !with(|world| world.traits.has_descriptor) {
            return -libc::ENOSYS;
        }
        let descriptor = if wants_descriptor { libc::eventfd(0, libc::EFD_NONBLOCK) } else { -1 };
        let object = FidCq {
            fid: fid(ops!(OpsFid { close: Some(close_queue), control: Some(control) })),
            ops: ops!(OpsCq { read: Some(completions), readerr: Some(failure) }),
        };
        *made = leak(Queue { object, end: 0, descriptor }).cast();
    }
    0
}

unsafe extern "C" fn close_queue(object: *mut Fid) -> c_int {
    // SAFETY: the object is a queue, and its descriptor its own.
    unsafe {
        libc::close((*object.cast::<Queue>()).descriptor);
        free::<Queue>(object)
    }
}

unsafe extern "C" fn control(object: *mut Fid, command: c_int, argument: *mut c_void) -> c_int {
    if command == FI_GETWAIT {
        // SAFETY: the object is a queue, and the argument a place for a descriptor.
        unsafe { *argument.cast::<c_int>() = (*object.cast::<Queue>()).descriptor };
    }
    0
}

unsafe extern "C" fn trywait(_fabric: *mut FidFabric, fids: *mut *mut Fid, _count: c_int) -> c_int {
    // SAFETY: the caller gives one queue.
    let number = unsafe { (**fids.cast::<*mut Queue>()).end };
    with(|world| {
        let is_still =
            world.ends.get(&number).is_none_or(|end| end.completions.is_empty() && end.operations.is_empty());
        if is_still { 0 } else { -libc::EAGAIN }
    })
}

unsafe extern "C" fn endpoint(
    _domain: *mut FidDomain,
    _info: *mut Info,
    made: *mut *mut FidEp,
    _context: *mut c_void,
) -> c_int {
    let number = with(|world| {
        let number = world.ends.len() as u64 + 1000;
        world.ends.insert(number, End::default());
        number
    });
    let object = FidEp {
        fid: fid(ops!(OpsFid { close: Some(close_endpoint), bind: Some(bind), control: Some(control) })),
        ops: ptr::null(),
        cm: ops!(OpsCm { getname: Some(name) }),
        msg: ops!(OpsMsg { recv: Some(post), send: Some(send), inject: Some(inject) }),
        rma: ops!(OpsRma { read: Some(read) }),
    };
    // SAFETY: the caller gives a place for the object.
    unsafe { *made = leak(Endpoint { object, number }).cast() };
    0
}

unsafe extern "C" fn close_endpoint(object: *mut Fid) -> c_int {
    with(|world| {
        if world.regions.values().any(|region| region.bound == Some(object as usize)) {
            world.complain("an endpoint was closed before a region that is bound to it");
        }
    });
    // SAFETY: the object is an endpoint.
    unsafe { free::<Endpoint>(object) }
}

unsafe extern "C" fn bind(object: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    if flags & FI_RECV != 0 {
        // SAFETY: with these flags, a queue is bound to an endpoint.
        unsafe { (*other.cast::<Queue>()).end = (*object.cast::<Endpoint>()).number };
    }
    0
}

unsafe extern "C" fn name(object: *mut Fid, address: *mut c_void, length: *mut usize) -> c_int {
    // SAFETY: the object is an endpoint, and the caller's place is longer than 8 bytes.
    unsafe {
        address.cast::<u64>().write_unaligned((*object.cast::<Endpoint>()).number);
        *length = 8;
    }
    0
}

unsafe extern "C" fn register(
    _domain: *mut Fid,
    start: *const c_void,
    bytes: usize,
    access: u64,
    _offset: u64,
    requested: u64,
    _flags: u64,
    made: *mut *mut FidMr,
    _context: *mut c_void,
) -> c_int {
    let result = with(|world| {
        let traits = world.traits;
        if traits.registration & FI_MR_ALLOCATED != 0 && !is_resident(start as usize, bytes) {
            world.complain("registered memory lacks pages");
        }
        if traits.registration & FI_MR_PROV_KEY != 0 {
            world.calls += 1;
            return Ok(world.calls * 7919);
        }
        if traits.key_bytes < 8 && requested >> (8 * traits.key_bytes) != 0 {
            world.complain("a key is too long");
        }
        let is_used = world.regions.values().any(|region| region.key == requested);
        if is_used { Err(-266) } else { Ok(requested) }
    });
    let Ok(key) = result else { return -266 };
    let is_late = with(|world| world.traits.registration & FI_MR_ENDPOINT != 0);
    let object = leak(FidMr {
        fid: fid(ops!(OpsFid { close: Some(close_region), bind: Some(bind_region), control: Some(enable_region) })),
        mem_desc: ptr::null_mut(),
        key: if is_late { FI_KEY_NOTAVAIL } else { key },
    });
    let region = Region { start: start as usize, bytes, access, key, bound: None, is_enabled: false };
    with(|world| world.regions.insert(object as usize, region));
    // SAFETY: the object is new, and the caller gives a place for it.
    unsafe {
        (*object).mem_desc = object.cast();
        *made = object;
    }
    0
}

/// Returns whether all pages of memory are there.
fn is_resident(start: usize, bytes: usize) -> bool {
    let first = start & !4095;
    let mut pages = vec![0; (start + bytes - first).div_ceil(4096)];
    // SAFETY: the place has a byte for each page.
    let result = unsafe { libc::mincore(first as *mut c_void, start + bytes - first, pages.as_mut_ptr()) };
    result == 0 && pages.iter().all(|page| page & 1 == 1)
}

unsafe extern "C" fn bind_region(object: *mut Fid, endpoint: *mut Fid, _flags: u64) -> c_int {
    with(|world| {
        if let Some(region) = world.regions.get_mut(&(object as usize)) {
            region.bound = Some(endpoint as usize);
        }
    });
    0
}

unsafe extern "C" fn enable_region(object: *mut Fid, _command: c_int, _argument: *mut c_void) -> c_int {
    with(|world| match world.regions.get_mut(&(object as usize)) {
        Some(region) if region.bound.is_some() => {
            region.is_enabled = true;
            // SAFETY: the object is a region.
            unsafe { (*object.cast::<FidMr>()).key = region.key };
        }
        _ => world.complain("a region was enabled that is not bound"),
    });
    0
}

unsafe extern "C" fn close_region(object: *mut Fid) -> c_int {
    with(|world| {
        if world.regions.remove(&(object as usize)).is_none() {
            world.complain("a region was closed that is not there");
        }
    });
    // SAFETY: the object is a region.
    unsafe { free::<FidMr>(object) }
}

unsafe fn number_of(endpoint: *mut FidEp) -> u64 {
    // SAFETY: every endpoint was made as this type.
    unsafe { (*endpoint.cast::<Endpoint>()).number }
}

/// Accepts an operation of an endpoint, unless its queue is said to be full.
unsafe fn accept(endpoint: *mut FidEp, check: impl FnOnce(&mut World), operation: Operation) -> isize {
    // SAFETY: as for `number_of`.
    let number = unsafe { number_of(endpoint) };
    with(|world| {
        if world.is_busy() {
            return -(libc::EAGAIN as isize);
        }
        check(world);
        match world.ends.get_mut(&number) {
            Some(end) => end.operations.push_back(operation),
            None => world.complain("an operation of an endpoint that is gone"),
        }
        0
    })
}

unsafe extern "C" fn post(
    endpoint: *mut FidEp,
    start: *mut c_void,
    bytes: usize,
    description: *mut c_void,
    _from: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as for `number_of`.
    let number = unsafe { number_of(endpoint) };
    with(|world| {
        if world.is_busy() || world.ends.get(&number).is_some_and(|end| end.posted.len() >= world.traits.receives) {
            return -(libc::EAGAIN as isize);
        }
        world.check_local(start as usize, bytes, description, FI_RECV, context);
        if let Some(end) = world.ends.get_mut(&number) {
            end.posted.push_back((start as usize, bytes, context as usize));
        }
        0
    })
}

unsafe extern "C" fn send(
    endpoint: *mut FidEp,
    start: *const c_void,
    bytes: usize,
    description: *mut c_void,
    to: u64,
    context: *mut c_void,
) -> isize {
    let check = |world: &mut World| world.check_local(start as usize, bytes, description, FI_SEND, context);
    let operation = Operation::Send { to, start: start as usize, bytes, context: context as usize };
    // SAFETY: as for `number_of`.
    unsafe { accept(endpoint, check, operation) }
}

unsafe extern "C" fn inject(endpoint: *mut FidEp, start: *const c_void, bytes: usize, to: u64) -> isize {
    // SAFETY: the caller gives this many bytes.
    let data = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), bytes) }.to_vec();
    let check = |world: &mut World| {
        if bytes > world.traits.inject_bytes {
            world.complain("a long message was injected");
        }
    };
    // SAFETY: as for `number_of`.
    unsafe { accept(endpoint, check, Operation::Injected { to, data }) }
}

unsafe extern "C" fn read(
    endpoint: *mut FidEp,
    start: *mut c_void,
    bytes: usize,
    description: *mut c_void,
    from: u64,
    address: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: as for `number_of`.
    let number = unsafe { number_of(endpoint) };
    let check = |world: &mut World| {
        let is_above_datagrams = world.traits.is_above_datagrams;
        if bytes > world.traits.message_bytes_max || is_above_datagrams && bytes > DATAGRAMS_READ_BYTES_MAX {
            world.complain("a read is too long");
        }
        let is_second = |end: &End| {
            end.operations.iter().any(|one| matches!(one, Operation::Read { from: other, .. } if *other == from))
        };
        if is_above_datagrams && world.ends.get(&number).is_some_and(is_second) {
            world.complain("two reads at a time");
        }
        world.check_local(start as usize, bytes, description, FI_READ, context);
    };
    let operation = Operation::Read { from, start: start as usize, bytes, address, key, context: context as usize };
    // SAFETY: as for `number_of`.
    unsafe { accept(endpoint, check, operation) }
}

unsafe extern "C" fn completions(queue: *mut FidCq, entries: *mut c_void, count: usize) -> isize {
    // SAFETY: every queue was made as this type.
    let number = unsafe { (*queue.cast::<Queue>()).end };
    with(|world| {
        world.progress(number);
        let Some(end) = world.ends.get_mut(&number) else { return -(libc::EAGAIN as isize) };
        let mut done = 0;
        while done < count {
            match end.completions.front().copied() {
                Some((context, len, 0)) => {
                    let entry = CqMsgEntry { op_context: context as *mut c_void, flags: 0, len };
                    // SAFETY: the caller gives room for `count` entries.
                    unsafe { entries.cast::<CqMsgEntry>().add(done).write(entry) };
                    end.completions.pop_front();
                    done += 1;
                }
                Some(_) if done == 0 => return -FI_EAVAIL,
                _ => break,
            }
        }
        if done == 0 { -(libc::EAGAIN as isize) } else { done as isize }
    })
}

unsafe extern "C" fn failure(queue: *mut FidCq, entry: *mut CqErrEntry, _flags: u64) -> isize {
    // SAFETY: every queue was made as this type.
    let number = unsafe { (*queue.cast::<Queue>()).end };
    with(|world| {
        let failed = world.ends.get_mut(&number).and_then(|end| end.completions.pop_front());
        let Some((context, _, error)) = failed else { return -(libc::EAGAIN as isize) };
        // SAFETY: the caller gives a place for the entry.
        unsafe {
            (*entry).op_context = context as *mut c_void;
            (*entry).err = error;
        }
        1
    })
}
