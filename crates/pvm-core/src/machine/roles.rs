//! Roles: which tasks serve the daemons as hoster, tasker, resource manager or tracer (contract 2.12).
use crate::codes::{
    CLASS_HOSTER, CLASS_MANAGER, CLASS_TASKER, CLASS_TRACER, TASK_HOSTER, TASK_RM, TASK_TASKER, TASK_TRACER,
};
use crate::proto::{Role, TraceSettings};
use crate::tid::Tid;
use crate::wire;

/// All roles.
pub(super) const ROLES: [Role; 4] = [Role::Hoster, Role::Tasker, Role::ResourceManager, Role::Tracer];

/// Returns the class of mailboxes in which the holder of a role is published.
pub(super) fn mailbox_class(role: Role) -> &'static str {
    match role {
        Role::Hoster => CLASS_HOSTER,
        Role::Tasker => CLASS_TASKER,
        Role::ResourceManager => CLASS_MANAGER,
        Role::Tracer => CLASS_TRACER,
    }
}

/// The holders of the roles, as far as this host knows.
#[derive(Default)]
pub(super) struct Roles {
    pub hoster: Option<Tid>,
    pub tasker: Option<Tid>,
    pub manager: Option<Tid>,
    pub tracer: Option<Tid>,
    /// Where the traces and the output of later tasks go by default, as the tracer has set it.
    pub tracer_settings: Option<TraceSettings>,
}

impl Roles {
    pub fn of(&self, role: Role) -> Option<Tid> {
        match role {
            Role::Hoster => self.hoster,
            Role::Tasker => self.tasker,
            Role::ResourceManager => self.manager,
            Role::Tracer => self.tracer,
        }
    }
    pub fn set(&mut self, role: Role, holder: Option<Tid>) {
        match role {
            Role::Hoster => self.hoster = holder,
            Role::Tasker => self.tasker = holder,
            Role::ResourceManager => self.manager = holder,
            Role::Tracer => self.tracer = holder,
        }
    }
    pub fn is_idle(&self) -> bool {
        self.tracer_settings.is_none() && ROLES.iter().all(|role| self.of(*role).is_none())
    }
    /// Returns the flags of a task that holds roles, for `pvm_tasks`.
    pub fn flags(&self, tid: Tid) -> u32 {
        let flag = |role: &Role| match role {
            Role::Hoster => TASK_HOSTER,
            Role::Tasker => TASK_TASKER,
            Role::ResourceManager => TASK_RM,
            Role::Tracer => TASK_TRACER,
        };
        ROLES.iter().filter(|role| self.of(**role) == Some(tid)).map(flag).sum()
    }
    /// Returns the holders of the roles that serve the whole machine, and the settings of the tracer.
    pub fn common(&self) -> wire::Servers {
        wire::Servers { manager: self.manager, tracer: self.tracer, tracer_settings: self.tracer_settings.clone() }
    }
    /// Directs the traces and the output of a new task to the collectors that the tracer has set, unless they have
    /// collectors already.
    pub fn settle(&self, settings: &mut TraceSettings) {
        let Some(wish) = &self.tracer_settings else { return };
        if settings.trace_tid <= 0 {
            (settings.trace_tid, settings.trace_ctx, settings.trace_tag) =
                (wish.trace_tid, wish.trace_ctx, wish.trace_tag);
            (settings.mask, settings.trace_buffer, settings.trace_options) =
                (wish.mask.clone(), wish.trace_buffer, wish.trace_options);
        }
        if settings.output_tid <= 0 {
            (settings.output_tid, settings.output_ctx, settings.output_tag) =
                (wish.output_tid, wish.output_ctx, wish.output_tag);
        }
    }
}
