//! A tracepoint of the kernel: its id and the fields of its samples.

use std::io;

use thiserror::Error;

use crate::machine::{Tracefs, TracefsError};
use crate::perf::TracepointsError;
use crate::perf_data::{TracepointField, tracepoint_id};

/// A tracepoint cannot be used.
#[derive(Debug, Error)]
pub(super) enum TracepointError {
    #[error(transparent)]
    Tracefs(#[from] TracefsError),
    #[error("{tracepoint} has no {field}")]
    Format {
        tracepoint: &'static str,
        field: &'static str,
    },
    #[error(transparent)]
    Perf(#[from] TracepointsError),
}

impl TracepointError {
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Tracefs(TracefsError::NotMounted(_)) => {
                "run as root with CAP_SYS_ADMIN, or mount /sys/kernel/tracing of the host into the container"
            }
            Self::Tracefs(TracefsError::Read { source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                "run as root (sudo), or with CAP_DAC_READ_SEARCH and CAP_PERFMON"
            }
            Self::Perf(TracepointsError::Open(_)) => "run as root or with CAP_PERFMON",
            Self::Perf(TracepointsError::Ring { .. }) => {
                "raise kernel.perf_event_mlock_kb or `ulimit -l`, or run with CAP_IPC_LOCK"
            }
            // This kernel has other tracepoints.
            Self::Tracefs(TracefsError::Read { .. }) | Self::Format { .. } => "",
        }
    }
}

/// What tracefs knows of a tracepoint.
pub(super) struct TracepointFormat {
    name: &'static str,
    /// Its id: `perf_event_attr.config`.
    pub(super) id: u64,
    fields: Vec<TracepointField>,
}

impl TracepointFormat {
    /// Reads that of a tracepoint, such as `block/block_rq_issue`.
    pub(super) fn read(tracefs: &Tracefs, name: &'static str) -> Result<Self, TracepointError> {
        let text = tracefs.format(name)?;
        let lacks_id = TracepointError::Format {
            tracepoint: name,
            field: "id",
        };
        Ok(Self {
            name,
            id: tracepoint_id(&text).ok_or(lacks_id)?,
            fields: TracepointField::all(&text),
        })
    }

    /// Takes a field, each once.
    pub(super) fn field(&mut self, name: &'static str) -> Result<TracepointField, TracepointError> {
        let at = self.fields.iter().position(|field| field.name == name);
        let lacks = TracepointError::Format {
            tracepoint: self.name,
            field: name,
        };
        at.map(|at| self.fields.swap_remove(at)).ok_or(lacks)
    }
}
