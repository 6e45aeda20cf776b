//! The objects of one endpoint: opened in order, closed in the opposite order.
use super::abi::{
    self, AvAttr, CqAttr, Fid, FidAv, FidCq, FidDomain, FidEp, FidFabric, FidMr, Info, OpsAv, OpsCm, OpsCq, OpsDomain,
    OpsFabric, OpsFid, OpsMr, OpsMsg, OpsRma, operation,
};
use super::library::{Candidate, Functions, close};
use crate::fabric::Failure;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;

/// The most bytes of an address. Providers need 28 bytes or less, apart from those with addresses of text.
pub(super) const ADDRESS_BYTES_MAX: usize = 256;
/// How often another random key is tried when the provider refuses one.
const KEY_TRIES: usize = 8;

/// The functions that carry messages, looked up once.
pub(super) struct Calls {
    pub recv: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub send: unsafe extern "C" fn(*mut FidEp, *const c_void, usize, *mut c_void, u64, *mut c_void) -> isize,
    pub inject: Option<unsafe extern "C" fn(*mut FidEp, *const c_void, usize, u64) -> isize>,
    pub read: unsafe extern "C" fn(*mut FidEp, *mut c_void, usize, *mut c_void, u64, u64, u64, *mut c_void) -> isize,
    pub completions: unsafe extern "C" fn(*mut FidCq, *mut c_void, usize) -> isize,
    pub failure: unsafe extern "C" fn(*mut FidCq, *mut abi::CqErrEntry, u64) -> isize,
}

/// The open objects. Null stands for an object that is not open.
pub(super) struct Objects {
    pub functions: Functions,
    pub ep: *mut FidEp,
    pub cq: *mut FidCq,
    av: *mut FidAv,
    domain: *mut FidDomain,
    fabric: *mut FidFabric,
    /// What the endpoint was made of; the provider may refer to it.
    _candidate: Candidate,
    registration: c_int,
    key_bytes: usize,
    pub wait: Option<RawFd>,
    /// Whether all objects are closed.
    is_closed: bool,
}

/// A registration of memory.
pub(super) struct Registration {
    object: *mut FidMr,
    /// What operations on this memory name it by.
    pub description: *mut c_void,
    /// What peers name it by.
    pub key: u64,
}

impl Objects {
    /// Opens everything up to the enabled endpoint, with room for these numbers of operations.
    pub fn open(candidate: Candidate, receives: usize, sends: usize, completions: usize) -> Result<Objects, Failure> {
        let functions = candidate.functions();
        let info = candidate.info();
        // SAFETY: the candidate's parts were checked when it was made.
        let (registration, key_bytes) = unsafe {
            let domain = &*(*info).domain_attr;
            (*(*info).rx_attr).size = receives;
            (*(*info).tx_attr).size = sends;
            (domain.mr_mode, domain.mr_key_size)
        };
        let mut objects = Objects {
            functions,
            ep: ptr::null_mut(),
            cq: ptr::null_mut(),
            av: ptr::null_mut(),
            domain: ptr::null_mut(),
            fabric: ptr::null_mut(),
            _candidate: candidate,
            registration,
            key_bytes,
            wait: None,
            is_closed: false,
        };
        objects.open_domain(info)?;
        objects.open_queue(completions)?;
        objects.open_endpoint(info)?;
        Ok(objects)
    }

    fn open_domain(&mut self, info: *mut Info) -> Result<(), Failure> {
        // SAFETY: the structure is libfabric's own copy; the new objects are kept in `self` and closed with it.
        unsafe {
            let result = (self.functions.fabric)((*info).fabric_attr, &raw mut self.fabric, ptr::null_mut());
            self.checked("fi_fabric", result)?;
            let open = self.required("fi_domain", operation!((*self.fabric).ops, OpsFabric, domain))?;
            let result = open(self.fabric, info, &raw mut self.domain, ptr::null_mut());
            self.checked("fi_domain", result)
        }
    }

    /// Opens the queue of completed operations, with a descriptor to wait for if the provider has one.
    fn open_queue(&mut self, completions: usize) -> Result<(), Failure> {
        let mut attributes = CqAttr {
            size: completions,
            flags: 0,
            format: abi::FI_CQ_FORMAT_MSG,
            wait_obj: abi::FI_WAIT_FD,
            signaling_vector: 0,
            wait_cond: 0,
            wait_set: ptr::null_mut(),
            later: [0; 4],
        };
        // SAFETY: the domain is open; the attributes live during the calls.
        unsafe {
            let open = self.required("fi_cq_open", operation!((*self.domain).ops, OpsDomain, cq_open))?;
            let mut result = open(self.domain, &raw mut attributes, &raw mut self.cq, ptr::null_mut());
            if result != 0 {
                attributes.wait_obj = abi::FI_WAIT_NONE;
                self.cq = ptr::null_mut();
                result = open(self.domain, &raw mut attributes, &raw mut self.cq, ptr::null_mut());
            }
            self.checked("fi_cq_open", result)?;
            let mut descriptor: c_int = -1;
            let control = operation!((*self.cq).fid.ops, OpsFid, control);
            if attributes.wait_obj == abi::FI_WAIT_FD
                && control.is_some_and(|control| {
                    control(&raw mut (*self.cq).fid, abi::FI_GETWAIT, (&raw mut descriptor).cast()) == 0
                })
                && descriptor >= 0
            {
                self.wait = Some(descriptor);
            }
        }
        Ok(())
    }

    fn open_endpoint(&mut self, info: *mut Info) -> Result<(), Failure> {
        let mut attributes = AvAttr {
            kind: 0,
            rx_ctx_bits: 0,
            count: 0,
            ep_per_node: 0,
            name: ptr::null(),
            map_addr: ptr::null_mut(),
            flags: 0,
        };
        // SAFETY: the domain and the queue are open; the attributes live during the calls.
        unsafe {
            let open = self.required("fi_av_open", operation!((*self.domain).ops, OpsDomain, av_open))?;
            let result = open(self.domain, &raw mut attributes, &raw mut self.av, ptr::null_mut());
            self.checked("fi_av_open", result)?;
            let open = self.required("fi_endpoint", operation!((*self.domain).ops, OpsDomain, endpoint))?;
            let result = open(self.domain, info, &raw mut self.ep, ptr::null_mut());
            self.checked("fi_endpoint", result)?;
            let fid = &raw mut (*self.ep).fid;
            let bind = self.required("fi_ep_bind", operation!((*fid).ops, OpsFid, bind))?;
            self.checked("fi_ep_bind", bind(fid, self.av.cast(), 0))?;
            self.checked("fi_ep_bind", bind(fid, self.cq.cast(), abi::FI_SEND | abi::FI_RECV))?;
            let control = self.required("fi_enable", operation!((*fid).ops, OpsFid, control))?;
            self.checked("fi_enable", control(fid, abi::FI_ENABLE, ptr::null_mut()))
        }
    }

    /// Looks up the functions that carry messages.
    pub fn calls(&self) -> Result<Calls, Failure> {
        // SAFETY: the endpoint and the queue are open, and their tables live as long. The endpoint is enabled: before,
        // the provider may still change its tables.
        unsafe {
            Ok(Calls {
                recv: self.required("fi_recv", operation!((*self.ep).msg, OpsMsg, recv))?,
                send: self.required("fi_send", operation!((*self.ep).msg, OpsMsg, send))?,
                inject: operation!((*self.ep).msg, OpsMsg, inject),
                read: self.required("fi_read", operation!((*self.ep).rma, OpsRma, read))?,
                completions: self.required("fi_cq_read", operation!((*self.cq).ops, OpsCq, read))?,
                failure: self.required("fi_cq_readerr", operation!((*self.cq).ops, OpsCq, readerr))?,
            })
        }
    }

    /// Returns this endpoint's address.
    pub fn address(&self) -> Result<Vec<u8>, Failure> {
        let mut bytes = vec![0; ADDRESS_BYTES_MAX];
        let mut length = bytes.len();
        // SAFETY: the endpoint is open; the provider writes at most `length` bytes.
        unsafe {
            let name = self.required("fi_getname", operation!((*self.ep).cm, OpsCm, getname))?;
            let result = name(&raw mut (*self.ep).fid, bytes.as_mut_ptr().cast(), &raw mut length);
            self.checked("fi_getname", result)?;
        }
        bytes.truncate(length);
        Ok(bytes)
    }

    /// Makes a peer's address known to the provider, and returns the provider's number for it. The address must have
    /// the length of an address of this provider.
    pub fn insert(&mut self, address: &[u8]) -> Result<u64, Failure> {
        // A provider may read more than the address has.
        let mut padded = [0; ADDRESS_BYTES_MAX];
        padded[..address.len()].copy_from_slice(address);
        let mut number = abi::FI_ADDR_UNSPEC;
        // SAFETY: the table is open, and the array is as long as any address.
        let inserted = unsafe {
            let insert = self.required("fi_av_insert", operation!((*self.av).ops, OpsAv, insert))?;
            insert(self.av, padded.as_ptr().cast(), 1, &raw mut number, 0, ptr::null_mut())
        };
        match inserted {
            1 => Ok(number),
            0 => Err(Failure { call: "fi_av_insert", words: "the address is refused".into() }),
            error => Err(self.failure("fi_av_insert", error.into())),
        }
    }

    /// Makes the provider forget a peer.
    pub fn remove(&mut self, mut number: u64) {
        // SAFETY: the table is open, and the number came from `insert`.
        unsafe {
            if let Some(remove) = operation!((*self.av).ops, OpsAv, remove) {
                remove(self.av, &raw mut number, 1, 0);
            }
        }
    }

    /// Returns whether operations must name registered memory of this process.
    pub fn registers_local(&self) -> bool {
        self.registration & abi::FI_MR_LOCAL != 0
    }

    /// Returns whether memory must have all its pages when it is registered.
    pub fn needs_pages(&self) -> bool {
        self.registration & abi::FI_MR_ALLOCATED != 0
    }

    /// Returns how a peer names the byte at `offset` of memory that begins at `start`.
    pub fn remote_address(&self, start: *const u8, offset: usize) -> u64 {
        match self.registration & abi::FI_MR_VIRT_ADDR {
            0 => offset as u64,
            _ => (start as usize + offset) as u64,
        }
    }

    /// Registers memory for the given kinds of access.
    ///
    /// # Safety
    /// The memory stays mapped until the registration has been closed and the endpoint no longer uses it.
    pub unsafe fn register(&mut self, start: *mut u8, bytes: usize, access: u64) -> Result<Registration, Failure> {
        let tries = if self.registration & abi::FI_MR_PROV_KEY == 0 { KEY_TRIES } else { 1 };
        let mut last = Failure { call: "fi_mr_reg", words: String::new() };
        for _ in 0..tries {
            // SAFETY: the caller's promise is passed on.
            match unsafe { self.register_once(start, bytes, access) } {
                Ok(registration) => return Ok(registration),
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    unsafe fn register_once(&mut self, start: *mut u8, bytes: usize, access: u64) -> Result<Registration, Failure> {
        let key = self.random_key()?;
        let mut object: *mut FidMr = ptr::null_mut();
        // SAFETY: the domain is open, and the caller promises that the memory is there.
        unsafe {
            let register = self.required("fi_mr_reg", operation!((*self.domain).mr, OpsMr, reg))?;
            let domain = &raw mut (*self.domain).fid;
            let result = register(domain, start.cast(), bytes, access, 0, key, 0, &raw mut object, ptr::null_mut());
            self.checked("fi_mr_reg", result)?;
            let registration = Registration { object, description: (*object).mem_desc, key: (*object).key };
            self.enable(registration)
        }
    }

    /// Binds a registration to the endpoint, where the provider asks for it. Only then its key is valid.
    unsafe fn enable(&mut self, mut registration: Registration) -> Result<Registration, Failure> {
        if self.registration & abi::FI_MR_ENDPOINT != 0 {
            // SAFETY: the object was just made, and the endpoint is open.
            let result = unsafe {
                let fid = &raw mut (*registration.object).fid;
                let bind = operation!((*fid).ops, OpsFid, bind)
                    .map_or(-libc::ENOSYS, |bind| bind(fid, &raw mut (*self.ep).fid, 0));
                let enable = || {
                    operation!((*fid).ops, OpsFid, control)
                        .map_or(-libc::ENOSYS, |control| control(fid, abi::FI_ENABLE, ptr::null_mut()))
                };
                if bind == 0 { enable() } else { bind }
            };
            if let Err(failure) = self.checked("fi_mr_enable", result) {
                self.unregister(registration);
                return Err(failure);
            }
            // SAFETY: as above.
            unsafe {
                registration.key = (*registration.object).key;
                registration.description = (*registration.object).mem_desc;
            }
        }
        if registration.key == abi::FI_KEY_NOTAVAIL {
            self.unregister(registration);
            return Err(Failure { call: "fi_mr_key", words: "keys of this provider are longer than 64 bits".into() });
        }
        Ok(registration)
    }

    /// Ends a registration. Peers can no longer read the memory. Returns whether the provider has let go of it.
    pub fn unregister(&mut self, registration: Registration) -> bool {
        // SAFETY: the object is open, and this value was the only way to it.
        unsafe { close(&raw mut (*registration.object).fid).is_ok() }
    }

    /// Returns a key that nobody can guess, as long as the provider allows. Ignored by providers that choose keys.
    fn random_key(&self) -> Result<u64, Failure> {
        let mut bytes = [0; 8];
        let length = self.key_bytes.min(8);
        rustix::rand::getrandom(&mut bytes[..length], rustix::rand::GetRandomFlags::empty())
            .map_err(|error| Failure { call: "getrandom", words: error.to_string() })?;
        // The value of all ones means that there is no key.
        Ok(u64::from_le_bytes(bytes).min(u64::MAX - 1))
    }

    /// Returns whether the process may sleep until the descriptor becomes readable. If not, something has happened.
    pub fn may_sleep(&mut self) -> bool {
        // SAFETY: the fabric and the queue are open.
        unsafe {
            let mut fids = [&raw mut (*self.cq).fid];
            operation!((*self.fabric).ops, OpsFabric, trywait)
                .is_some_and(|trywait| trywait(self.fabric, fids.as_mut_ptr(), 1) == 0)
        }
    }

    fn checked(&self, call: &'static str, result: c_int) -> Result<(), Failure> {
        if result == 0 { Ok(()) } else { Err(self.failure(call, result.into())) }
    }

    pub fn failure(&self, call: &'static str, error: i64) -> Failure {
        Failure { call, words: self.functions.words(error) }
    }

    fn required<T>(&self, call: &'static str, function: Option<T>) -> Result<T, Failure> {
        function.ok_or_else(|| Failure { call, words: "the provider lacks this function".into() })
    }

    /// Closes everything. Returns false if the provider refuses to let go of the endpoint, which may then still write
    /// to memory. Registrations must have been closed before.
    pub fn close(&mut self) -> bool {
        if self.is_closed {
            return true;
        }
        self.is_closed = true;
        // SAFETY: each object is open or null and is closed once, after everything that depends on it; nothing is
        // used afterwards.
        unsafe {
            let fids: [*mut Fid; 5] =
                [self.ep.cast(), self.cq.cast(), self.av.cast(), self.domain.cast(), self.fabric.cast()];
            fids.into_iter().filter(|fid| !fid.is_null()).all(|fid| close(fid).is_ok())
        }
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close();
    }
}
