//! Loading libfabric, and what its providers offer.
use super::abi::{self, FabricAttr, Fid, FidFabric, Info};
use crate::fabric::LoadError;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;

type GetInfo = unsafe extern "C" fn(u32, *const c_char, *const c_char, u64, *const Info, *mut *mut Info) -> c_int;
type FreeInfo = unsafe extern "C" fn(*mut Info);
type DupInfo = unsafe extern "C" fn(*const Info) -> *mut Info;
type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
type Version = unsafe extern "C" fn() -> u32;
type StrError = unsafe extern "C" fn(c_int) -> *const c_char;

/// The six functions of libfabric that are called by name. All others are in tables.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub getinfo: GetInfo,
    pub freeinfo: FreeInfo,
    pub dupinfo: DupInfo,
    pub fabric: OpenFabric,
    pub version: Version,
    pub strerror: StrError,
}

impl Functions {
    /// Returns libfabric's words for an error number, without its sign.
    pub fn words(&self, error: i64) -> String {
        let number = c_int::try_from(error.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: the function takes every number and returns a string that is never freed.
        let text = unsafe { (self.strerror)(number) };
        if text.is_null() {
            return format!("error {number}");
        }
        // SAFETY: as above; the string ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

/// The library, once loaded. It is never unloaded, since its providers may have threads.
#[derive(Clone, Copy)]
pub struct Library {
    functions: Functions,
}

impl Library {
    /// Loads the library of this name or path.
    ///
    /// Libraries of some providers install handlers for SIGSEGV, SIGTERM and other signals when they are loaded. All
    /// signal dispositions are restored to what they were before.
    pub fn load(name: &OsStr) -> Result<Library, LoadError> {
        let wanted = CString::new(name.as_bytes()).map_err(|_| LoadError::Absent("a name with a zero byte".into()))?;
        let kept = Dispositions::save();
        // SAFETY: `wanted` is a string. The initialisers of the library and of its providers run here; what they do to
        // signals is undone below.
        let handle = unsafe { libc::dlopen(wanted.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        kept.restore();
        if handle.is_null() {
            return Err(LoadError::Absent(last_error()));
        }
        // SAFETY: these are the declarations of these functions in every version of libfabric 1 and 2.
        let functions = unsafe {
            Functions {
                getinfo: std::mem::transmute::<*mut c_void, GetInfo>(symbol(handle, c"fi_getinfo")?),
                freeinfo: std::mem::transmute::<*mut c_void, FreeInfo>(symbol(handle, c"fi_freeinfo")?),
                dupinfo: std::mem::transmute::<*mut c_void, DupInfo>(symbol(handle, c"fi_dupinfo")?),
                fabric: std::mem::transmute::<*mut c_void, OpenFabric>(symbol(handle, c"fi_fabric")?),
                version: std::mem::transmute::<*mut c_void, Version>(symbol(handle, c"fi_version")?),
                strerror: std::mem::transmute::<*mut c_void, StrError>(symbol(handle, c"fi_strerror")?),
            }
        };
        Library::new(functions)
    }

    /// Takes functions that are there already.
    pub(super) fn new(functions: Functions) -> Result<Library, LoadError> {
        let library = Library { functions };
        let (major, minor) = library.version();
        if abi::version(major, minor) < abi::API_VERSION {
            return Err(LoadError::TooOld { major, minor });
        }
        Ok(library)
    }

    /// Returns the library's version: major and minor number.
    pub fn version(&self) -> (u32, u32) {
        // SAFETY: the function has no arguments and no conditions.
        let version = unsafe { (self.functions.version)() };
        (version >> 16, version & 0xffff)
    }

    /// Returns what the providers offer of the kind that is needed: messages between any endpoints in the order in which
    /// they were sent, and reading of remote memory. With `provider`, only what this provider offers. Libfabric lists
    /// what it holds for the best first.
    pub fn candidates(&self, provider: Option<&str>) -> Result<Vec<Candidate>, String> {
        let kept = Dispositions::save();
        let found = self.ask(provider);
        kept.restore();
        found
    }

    fn ask(&self, provider: Option<&str>) -> Result<Vec<Candidate>, String> {
        let functions = self.functions;
        // SAFETY: without an argument, the function makes an empty structure with all its parts.
        let hints = unsafe { (functions.dupinfo)(ptr::null()) };
        if hints.is_null() {
            return Err("no memory".into());
        }
        // The structure is freed with this value.
        let hints = InfoList { first: hints, functions };
        // SAFETY: the structure has all its parts, and nobody else knows it.
        unsafe {
            let info = hints.first;
            (*info).caps = abi::FI_MSG | abi::FI_RMA;
            (*info).mode = abi::FI_CONTEXT | abi::FI_CONTEXT2;
            (*(*info).tx_attr).msg_order = abi::FI_ORDER_SAS;
            (*(*info).rx_attr).msg_order = abi::FI_ORDER_SAS;
            (*(*info).ep_attr).kind = abi::FI_EP_RDM;
            let domain = (*info).domain_attr;
            (*domain).mr_mode = abi::FI_MR_LOCAL
                | abi::FI_MR_VIRT_ADDR
                | abi::FI_MR_ALLOCATED
                | abi::FI_MR_PROV_KEY
                | abi::FI_MR_ENDPOINT;
            (*domain).threading = abi::FI_THREAD_DOMAIN;
            (*domain).data_progress = abi::FI_PROGRESS_MANUAL;
            (*domain).control_progress = abi::FI_PROGRESS_MANUAL;
            if let Some(name) = provider.and_then(|name| CString::new(name).ok()) {
                // Freed together with the structure, by `free`.
                (*(*info).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        let mut first: *mut Info = ptr::null_mut();
        // SAFETY: the hints are complete; the list that the function makes is freed below.
        let result =
            unsafe { (functions.getinfo)(abi::API_VERSION, ptr::null(), ptr::null(), 0, hints.first, &raw mut first) };
        if result == -libc::ENODATA {
            return Ok(Vec::new());
        }
        if result != 0 {
            return Err(functions.words(result.into()));
        }
        let list = InfoList { first, functions };
        let mut candidates = Vec::new();
        let mut next = list.first;
        while !next.is_null() {
            // SAFETY: `next` is an element of the list, which is alive.
            unsafe {
                candidates.extend(Candidate::copy_of(next, functions));
                next = (*next).next;
            }
        }
        Ok(candidates)
    }
}

/// A list that libfabric has made.
struct InfoList {
    first: *mut Info,
    functions: Functions,
}

impl Drop for InfoList {
    fn drop(&mut self) {
        if !self.first.is_null() {
            // SAFETY: the list is libfabric's, and is freed once.
            unsafe { (self.functions.freeinfo)(self.first) };
        }
    }
}

/// One way in which a provider can communicate.
pub struct Candidate {
    info: InfoList,
    /// The provider's name, such as `tcp;ofi_rxm`.
    pub provider: String,
    /// The name of the domain, such as that of a network interface.
    pub domain: String,
    /// The name of the fabric. Domains of one fabric can reach each other.
    pub fabric: String,
    /// The form of addresses: libfabric's number.
    pub address_format: u32,
    /// How many bytes a message may have that is sent without waiting for the network.
    pub inject_bytes: usize,
    /// How memory is registered: libfabric's bits.
    pub registration: i32,
    /// Whether the provider makes progress without being called, by a thread or by hardware.
    pub progresses_alone: bool,
}

impl Candidate {
    /// Copies an element of a list. Returns `None` if it lacks a part or there is no memory.
    ///
    /// # Safety
    /// `info` is an element of a list that libfabric has made.
    unsafe fn copy_of(info: *const Info, functions: Functions) -> Option<Candidate> {
        // SAFETY: the caller promises it.
        let copy = unsafe { (functions.dupinfo)(info) };
        if copy.is_null() {
            return None;
        }
        let info = InfoList { first: copy, functions };
        // SAFETY: libfabric's copy is a whole structure; its parts are checked before they are read.
        unsafe {
            let info_ref = &*copy;
            let parts = [
                info_ref.tx_attr.cast::<c_void>(),
                info_ref.rx_attr.cast(),
                info_ref.ep_attr.cast(),
                info_ref.domain_attr.cast(),
                info_ref.fabric_attr.cast(),
            ];
            if parts.iter().any(|part| part.is_null()) {
                return None;
            }
            let (domain, fabric) = (&*info_ref.domain_attr, &*info_ref.fabric_attr);
            Some(Candidate {
                provider: text(fabric.prov_name),
                domain: text(domain.name),
                fabric: text(fabric.name),
                address_format: info_ref.addr_format,
                inject_bytes: (*info_ref.tx_attr).inject_size,
                registration: domain.mr_mode,
                progresses_alone: domain.data_progress != abi::FI_PROGRESS_MANUAL,
                info,
            })
        }
    }

    pub(super) fn info(&self) -> *mut Info {
        self.info.first
    }

    pub(super) fn functions(&self) -> Functions {
        self.info.functions
    }
}

/// Returns a string that may be missing.
///
/// # Safety
/// The pointer is null or leads to a string.
unsafe fn text(string: *const c_char) -> String {
    if string.is_null() {
        return String::new();
    }
    // SAFETY: the caller promises it.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

fn symbol(handle: *mut c_void, name: &CStr) -> Result<*mut c_void, LoadError> {
    // SAFETY: the handle is open, and the name is a string.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    if found.is_null() { Err(LoadError::Broken(name.to_string_lossy().into_owned())) } else { Ok(found) }
}

/// Returns the loader's message about its last failure.
fn last_error() -> String {
    // SAFETY: the message is valid until the next call of the loader in this thread, and is copied at once.
    unsafe { text(libc::dlerror()) }
}

/// What happens at each signal.
struct Dispositions(Vec<(c_int, libc::sigaction)>);

impl Dispositions {
    fn save() -> Dispositions {
        let mut all = Vec::new();
        for signal in 1..=libc::SIGRTMAX() {
            // SAFETY: zeroes are a value of this structure of integers and an optional pointer.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: the structure lives during the call, which only reads the disposition.
            if unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } == 0 {
                all.push((signal, action));
            }
        }
        Dispositions(all)
    }

    /// Sets those dispositions back that have changed.
    fn restore(&self) {
        for ((signal, before), (_, now)) in self.0.iter().zip(&Dispositions::save().0) {
            if before.sa_sigaction != now.sa_sigaction || before.sa_flags != now.sa_flags {
                // SAFETY: this disposition was in force before, and its handler is still loaded.
                unsafe { libc::sigaction(*signal, before, ptr::null_mut()) };
            }
        }
    }
}

/// Closes an object. Returns libfabric's error number if the provider refuses.
///
/// # Safety
/// The object is open, is not used afterwards, and nothing that depends on it is open.
pub(super) unsafe fn close(object: *mut Fid) -> Result<(), i64> {
    // SAFETY: every object has a table with this function; the caller promises the rest.
    let close = unsafe { abi::operation!((*object).ops, abi::OpsFid, close) };
    // SAFETY: as above.
    let result = close.map_or(-libc::ENOSYS, |close| unsafe { close(object) });
    if result == 0 { Ok(()) } else { Err(result.into()) }
}
