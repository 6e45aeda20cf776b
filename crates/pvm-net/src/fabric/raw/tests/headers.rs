//! The structures are those of the installed headers.
use super::super::abi::*;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// The folder of the headers, unless the variable `HPVM_FABRIC_HEADERS` names another one.
const HEADERS: &str = "/usr/include";

/// Returns lines of C that hold if each member is where the Rust structure has it.
macro_rules! same {
    ($rust:ty, $c:literal, $($member:ident as $name:literal),+) => {
        [$(format!("A(offsetof({}, {}) == {})\n", $c, $name, offset_of!($rust, $member))),+].concat()
    };
}

fn structures() -> String {
    [
        same!(Fid, "struct fid", class as "fclass", ops as "ops"),
        same!(OpsFid, "struct fi_ops", close as "close", bind as "bind", control as "control"),
        same!(TxAttr, "struct fi_tx_attr", msg_order as "msg_order", inject_size as "inject_size", size as "size"),
        same!(RxAttr, "struct fi_rx_attr", msg_order as "msg_order", size as "size"),
        same!(EpAttr, "struct fi_ep_attr", kind as "type", max_msg_size as "max_msg_size"),
        same!(DomainAttr, "struct fi_domain_attr", name as "name", threading as "threading"),
        same!(DomainAttr, "struct fi_domain_attr", control_progress as "control_progress"),
        same!(DomainAttr, "struct fi_domain_attr", data_progress as "data_progress", mr_mode as "mr_mode"),
        same!(DomainAttr, "struct fi_domain_attr", mr_key_size as "mr_key_size"),
        same!(FabricAttr, "struct fi_fabric_attr", name as "name", prov_name as "prov_name"),
        same!(Info, "struct fi_info", next as "next", caps as "caps", mode as "mode", addr_format as "addr_format"),
        same!(Info, "struct fi_info", tx_attr as "tx_attr", rx_attr as "rx_attr", ep_attr as "ep_attr"),
        same!(Info, "struct fi_info", domain_attr as "domain_attr", fabric_attr as "fabric_attr"),
        same!(FidFabric, "struct fid_fabric", ops as "ops"),
        same!(OpsFabric, "struct fi_ops_fabric", domain as "domain", trywait as "trywait"),
        same!(FidDomain, "struct fid_domain", ops as "ops", mr as "mr"),
        same!(OpsDomain, "struct fi_ops_domain", av_open as "av_open", cq_open as "cq_open"),
        same!(OpsDomain, "struct fi_ops_domain", endpoint as "endpoint"),
        same!(OpsMr, "struct fi_ops_mr", reg as "reg"),
        same!(FidMr, "struct fid_mr", mem_desc as "mem_desc", key as "key"),
        same!(AvAttr, "struct fi_av_attr", kind as "type", count as "count", flags as "flags"),
        same!(FidAv, "struct fid_av", ops as "ops"),
        same!(OpsAv, "struct fi_ops_av", insert as "insert", remove as "remove"),
        same!(CqAttr, "struct fi_cq_attr", size as "size", format as "format", wait_obj as "wait_obj"),
        same!(FidCq, "struct fid_cq", ops as "ops"),
        same!(OpsCq, "struct fi_ops_cq", read as "read", readerr as "readerr"),
        same!(CqMsgEntry, "struct fi_cq_msg_entry", op_context as "op_context", flags as "flags", len as "len"),
        same!(CqErrEntry, "struct fi_cq_err_entry", op_context as "op_context", err as "err"),
        same!(CqErrEntry, "struct fi_cq_err_entry", err_data_size as "err_data_size"),
        same!(FidEp, "struct fid_ep", cm as "cm", msg as "msg", rma as "rma"),
        same!(OpsCm, "struct fi_ops_cm", getname as "getname"),
        same!(OpsMsg, "struct fi_ops_msg", recv as "recv", send as "send", inject as "inject"),
        same!(OpsRma, "struct fi_ops_rma", read as "read"),
    ]
    .concat()
}

fn numbers() -> String {
    let words: [(&str, u64); 13] = [
        ("FI_MSG", FI_MSG),
        ("FI_RMA", FI_RMA),
        ("FI_READ", FI_READ),
        ("FI_RECV", FI_RECV),
        ("FI_SEND", FI_SEND),
        ("FI_REMOTE_READ", FI_REMOTE_READ),
        ("FI_CONTEXT", FI_CONTEXT),
        ("FI_CONTEXT2", FI_CONTEXT2),
        ("FI_ORDER_SAS", FI_ORDER_SAS),
        ("FI_ADDR_UNSPEC", FI_ADDR_UNSPEC),
        ("FI_KEY_NOTAVAIL", FI_KEY_NOTAVAIL),
        ("FI_EAVAIL", FI_EAVAIL as u64),
        ("FI_VERSION(1, 14)", API_VERSION as u64),
    ];
    let small = [
        ("FI_MR_LOCAL", FI_MR_LOCAL),
        ("FI_MR_VIRT_ADDR", FI_MR_VIRT_ADDR),
        ("FI_MR_ALLOCATED", FI_MR_ALLOCATED),
        ("FI_MR_PROV_KEY", FI_MR_PROV_KEY),
        ("FI_MR_ENDPOINT", FI_MR_ENDPOINT),
        ("FI_EP_RDM", FI_EP_RDM),
        ("FI_THREAD_DOMAIN", FI_THREAD_DOMAIN),
        ("FI_PROGRESS_MANUAL", FI_PROGRESS_MANUAL),
        ("FI_GETWAIT", FI_GETWAIT),
        ("FI_ENABLE", FI_ENABLE),
        ("FI_WAIT_NONE", FI_WAIT_NONE),
        ("FI_WAIT_FD", FI_WAIT_FD),
        ("FI_CQ_FORMAT_MSG", FI_CQ_FORMAT_MSG),
    ];
    let words = words.map(|(name, value)| format!("A((uint64_t){name} == {value}u)\n"));
    let small = small.map(|(name, value)| format!("A({name} == {value})\n"));
    words.concat() + &small.concat()
}

/// Checks the structures and numbers with a C compiler. Returns its messages.
fn compared_with(headers: &Path) -> Result<(), String> {
    let sizes = format!(
        "A(sizeof(struct fi_cq_msg_entry) == {})\nA(sizeof(struct fi_cq_err_entry) <= {})\n\
         A(sizeof(struct fi_cq_attr) <= {})\nA(sizeof(struct fi_av_attr) == {})\nA(sizeof(struct fi_context2) <= 64)\n",
        size_of::<CqMsgEntry>(),
        size_of::<CqErrEntry>(),
        size_of::<CqAttr>(),
        size_of::<AvAttr>()
    );
    let program = format!(
        "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n\
         #include <rdma/fi_eq.h>\n#include <rdma/fi_rma.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_errno.h>\n\
         #define A(x) _Static_assert(x, #x);\n{}{}{sizes}",
        structures(),
        numbers()
    );
    let file = std::env::temp_dir().join(format!("hpvm-fabric-abi-{}.c", std::process::id()));
    std::fs::write(&file, program).unwrap();
    let result = Command::new("cc").args(["-std=c11", "-w", "-fsyntax-only", "-I"]).arg(headers).arg(&file).output();
    std::fs::remove_file(&file).unwrap();
    let result = result.map_err(|error| error.to_string())?;
    if result.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&result.stderr).into_owned()) }
}

#[test]
fn structures_and_numbers_are_those_of_the_headers() {
    let headers = std::env::var_os("HPVM_FABRIC_HEADERS").unwrap_or_else(|| HEADERS.into());
    if !Path::new(&headers).join("rdma/fabric.h").exists() {
        println!("skipped: there are no headers of libfabric (`cargo xtask setup test`)");
        return;
    }
    assert_eq!(compared_with(Path::new(&headers)), Ok(()));
}
