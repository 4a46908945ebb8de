//! Frames of the code addresses in the stacks of a stream.

use std::collections::HashMap;

use crate::dotnet::{MethodRange, RundownTable};
use crate::symbolize;
use crate::trace::{
    CodeAddress, Distinct, Frame, FrameId, Function, FunctionId, ProcessId, Truncation,
};

/// Maximum number of addresses with a frame.
const MAX_ADDRESSES: usize = 1 << 20;

/// Numbers of addresses in stacks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CodeCounts {
    /// Different addresses.
    pub(super) addresses: usize,
    /// Those without a name.
    pub(super) unnamed: usize,
}

/// The frames of addresses.
pub(super) struct Code<'a> {
    methods: &'a RundownTable,
    /// Whether the methods were listed by addresses as they are in stacks.
    lists_addresses: bool,
    /// Frames by the address whose method is searched for. The sender chooses the addresses of both
    /// tables, so their hashes have a random seed.
    frames: HashMap<u64, NamedFrame>,
    /// Functions by the start of their method.
    of_methods: HashMap<u64, FunctionId>,
    functions: Distinct<Function>,
    rows: Vec<Frame>,
    row_functions: Vec<FunctionId>,
    counts: CodeCounts,
    truncated: Option<FrameId>,
}

/// A frame, and whether its function has a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedFrame {
    pub(super) frame: FrameId,
    pub(super) has_name: bool,
}

/// The rows of a trace.
pub(super) struct CodeRows {
    pub(super) functions: Vec<Function>,
    pub(super) frames: Vec<Frame>,
    pub(super) frame_functions: Vec<FunctionId>,
    pub(super) counts: CodeCounts,
}

impl<'a> Code<'a> {
    pub(super) fn new(methods: &'a RundownTable, lists_addresses: bool) -> Self {
        Self {
            methods,
            lists_addresses,
            frames: HashMap::new(),
            of_methods: HashMap::new(),
            functions: Distinct::default(),
            rows: Vec::new(),
            row_functions: Vec::new(),
            counts: CodeCounts::default(),
            truncated: None,
        }
    }

    /// Returns the frame of a return address, or `None` if there are too many addresses.
    pub(super) fn caller(&mut self, address: u64) -> Option<NamedFrame> {
        let call = address.saturating_sub(1);
        let is_listed = self.methods.start_of(call).is_some() || !self.lists_addresses;
        self.frame(if is_listed { call } else { address }, address)
    }

    /// Returns the frame of the instruction that a thread executes, or `None` if there are too many
    /// addresses.
    pub(super) fn leaf(&mut self, address: u64) -> Option<NamedFrame> {
        self.frame(address, address)
    }

    /// Returns the frame that stands for callers beyond the limit of a stack.
    pub(super) fn truncated(&mut self) -> FrameId {
        if let Some(frame) = self.truncated {
            return frame;
        }
        let function = symbolize::unsymbolized(CodeAddress::Truncated(Truncation::TooDeep));
        let function = FunctionId(self.functions.intern(function));
        let frame = self.push(0, function);
        self.truncated = Some(frame);
        frame
    }

    fn frame(&mut self, searched: u64, shown: u64) -> Option<NamedFrame> {
        if let Some(known) = self.frames.get(&searched) {
            return Some(*known);
        }
        if self.frames.len() >= MAX_ADDRESSES {
            return None;
        }
        let method = self.methods.start_of(searched);
        let function = match method {
            Some(start) => self.function(start, shown),
            None => FunctionId(self.functions.intern(unnamed(shown))),
        };
        let named = NamedFrame {
            frame: self.push(shown, function),
            has_name: method.is_some(),
        };
        self.counts.addresses += 1;
        self.counts.unnamed += usize::from(!named.has_name);
        self.frames.insert(searched, named);
        Some(named)
    }

    fn function(&mut self, start: u64, address: u64) -> FunctionId {
        if let Some(known) = self.of_methods.get(&start) {
            return *known;
        }
        let function = match self.methods.method_at(start) {
            Some(MethodRange {
                is_jitted, name, ..
            }) => symbolize::function_of_method(name, is_jitted),
            None => unnamed(address),
        };
        let function = FunctionId(self.functions.intern(function));
        self.of_methods.insert(start, function);
        function
    }

    fn push(&mut self, offset: u64, function: FunctionId) -> FrameId {
        let row = self.rows.len() as u32;
        self.row_functions.push(function);
        self.rows.push(Frame {
            offset,
            functions: row..row + 1,
        });
        FrameId(row)
    }

    pub(super) fn finish(self) -> CodeRows {
        CodeRows {
            functions: self.functions.into_rows(),
            frames: self.rows,
            frame_functions: self.row_functions,
            counts: self.counts,
        }
    }
}

/// Returns the function of an address without a method. Only managed code is in stacks.
fn unnamed(address: u64) -> Function {
    symbolize::unsymbolized(CodeAddress::Jit(ProcessId(0), address))
}
