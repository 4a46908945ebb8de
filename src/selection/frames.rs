//! What the patterns make of each frame.

use hashbrown::HashMap;
use rustc_hash::FxHashMap;

use super::{CodePatterns, OTHER};
use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{FrameId, Function, FunctionId, FunctionKind, Trace};

/// What the patterns make of a function in a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameRule {
    /// Whether samples with it are left out.
    pub(super) is_excluded: bool,
    /// Whether it is a part of its caller.
    pub(super) is_folded: bool,
    /// Bits of the include patterns that it matches.
    pub(super) included: u64,
    /// Its group. Calls within a group are a part of its first frame.
    pub(super) group: Option<u32>,
    /// The frame that replaces it.
    pub(super) frame: FrameId,
}

/// The frames of a selection, each with one function.
pub(super) struct Frames<'a> {
    trace: &'a Trace,
    patterns: &'a CodePatterns,
    own_code: Option<OwnCode>,
    /// Rules by index in [`Trace::frame_functions`].
    rules: Vec<Option<FrameRule>>,
    /// By name. The trace chooses the names, so their hashes have a random seed.
    groups: HashMap<String, u32>,
    /// Rows of `functions` by name, for groups.
    group_functions: HashMap<String, FunctionId>,
    by_function: FxHashMap<(FunctionId, Option<u64>), FrameId>,
    pub(super) functions: Vec<Function>,
    pub(super) frames: Vec<crate::trace::Frame>,
    pub(super) frame_functions: Vec<FunctionId>,
}

impl<'a> Frames<'a> {
    /// `own_code`: the user's, if all other code is one group.
    pub(super) fn new(
        trace: &'a Trace,
        patterns: &'a CodePatterns,
        own_code: Option<OwnCode>,
    ) -> Self {
        Self {
            trace,
            patterns,
            own_code,
            rules: vec![None; trace.frame_functions.len()],
            groups: HashMap::new(),
            group_functions: HashMap::new(),
            by_function: FxHashMap::default(),
            functions: trace.functions.clone(),
            frames: Vec::new(),
            frame_functions: Vec::new(),
        }
    }

    /// Returns the rule of a function in a frame, by its index in [`Trace::frame_functions`].
    pub(super) fn rule(&mut self, frame: FrameId, entry: u32) -> FrameRule {
        if let Some(rule) = self.rules[entry as usize] {
            return rule;
        }
        let rule = self.new_rule(frame, entry);
        self.rules[entry as usize] = Some(rule);
        rule
    }

    fn new_rule(&mut self, frame: FrameId, entry: u32) -> FrameRule {
        let trace = self.trace;
        let function = trace.frame_functions[entry as usize];
        let row = &trace.functions[function.index()];
        let name = format!(
            "{}!{}",
            label::module(row),
            label::name(trace, frame, function)
        );
        // What a thread waited for, and who woke it, is not code.
        let is_code = !matches!(row.kind, FunctionKind::Marker | FunctionKind::Blocked);
        let group = match &self.own_code {
            _ if !is_code => None,
            Some(own) if !own.is_own(function) => Some((OTHER.to_owned(), true)),
            _ => {
                let group = self.patterns.group.group_of(&name);
                group.map(|group| (group.name, group.is_entry))
            }
        };
        let Some((group, is_entry)) = group else {
            let is_offset = label::known_name(row).is_none() && row.start.is_none();
            let offset = is_offset.then(|| trace.frames[frame.index()].offset);
            let frame = self.frame(function, offset);
            return self.matched(&name, None, frame);
        };
        let shown = match is_entry {
            true => format!("{group} <<{name}>>"),
            false => group.clone(),
        };
        let function = self.group_function(&shown);
        let frame = self.frame(function, None);
        let next = self.groups.len() as u32;
        let group = *self.groups.entry(group).or_insert(next);
        self.matched(&shown, Some(group), frame)
    }

    fn matched(&self, name: &str, group: Option<u32>, frame: FrameId) -> FrameRule {
        let patterns = self.patterns;
        FrameRule {
            is_excluded: patterns.exclude.any(name),
            is_folded: patterns.fold.any(name),
            included: patterns.include.matches(name),
            group,
            frame,
        }
    }

    /// Returns the function that stands for a group.
    fn group_function(&mut self, name: &str) -> FunctionId {
        if let Some(&known) = self.group_functions.get(name) {
            return known;
        }
        let id = FunctionId(self.functions.len() as u32);
        self.functions.push(Function {
            name: Some(name.into()),
            start: None,
            module: Box::default(),
            tier: None,
            kind: FunctionKind::Group,
            inlined: false,
        });
        self.group_functions.insert(name.to_owned(), id);
        id
    }

    fn frame(&mut self, function: FunctionId, offset: Option<u64>) -> FrameId {
        let key = (function, offset);
        if let Some(&known) = self.by_function.get(&key) {
            return known;
        }
        let at = self.frame_functions.len() as u32;
        self.frame_functions.push(function);
        self.frames.push(crate::trace::Frame {
            offset: offset.unwrap_or_default(),
            functions: at..at + 1,
        });
        let id = FrameId(self.frames.len() as u32 - 1);
        self.by_function.insert(key, id);
        id
    }
}
