//! What is known about registers and the stack at an instruction.

use iced_x86::Register;

/// Number of general-purpose registers.
const REGISTERS: usize = 16;
pub(super) const RAX: u8 = 0;
pub(super) const RCX: u8 = 1;
pub(super) const RDX: u8 = 2;
pub(super) const RBX: u8 = 3;
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;
/// Registers that a function restores (System V ABI for x86-64, "Register Usage").
pub(super) const CALLEE_SAVED: [u8; 6] = [RBX, RBP, 12, 13, 14, 15];
/// Registers that a call may change.
const CALLER_SAVED: [u8; 9] = [RAX, RCX, RDX, 6, 7, 8, 9, 10, 11];
/// Limit of known stack words of a function. More of them are unknown.
const MAX_SLOTS: usize = 32;

/// A value of 8 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value {
    /// Any value.
    #[default]
    Unknown,
    /// The value of a callee-saved register in the caller.
    Entry(u8),
    /// An address relative to the CFA, the stack pointer after the return.
    Cfa(i64),
    /// An address relative to one whose distance from the CFA is unknown, as the stack was aligned or
    /// got a variable size. A state has one of these.
    Aligned(i64),
    /// A number.
    Constant(u64),
    /// An entry of a table of 32-bit offsets at an address.
    Offset(u64),
    /// The sum of such an entry and a number: table, number.
    Sum(u64, u64),
    /// An entry of a table of 64-bit addresses at an address.
    Target(u64),
}

impl Value {
    /// Adds a number.
    pub(super) fn plus(self, number: i64) -> Self {
        match self {
            Self::Cfa(offset) => offset.checked_add(number).map_or(Self::Unknown, Self::Cfa),
            Self::Aligned(offset) => {
                let sum = offset.checked_add(number);
                sum.map_or(Self::Unknown, Self::Aligned)
            }
            Self::Constant(value) => Self::Constant(value.wrapping_add_signed(number)),
            value if number == 0 => value,
            _ => Self::Unknown,
        }
    }
}

/// A stack word: its address, which is relative to the CFA or an aligned one, and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    address: Value,
    value: Value,
}

/// Registers and stack before an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    registers: [Value; REGISTERS],
    slots: Vec<Slot>,
    /// The number that a register was last compared with.
    pub(super) compared: Option<u64>,
}

impl State {
    /// Returns the state at the first instruction of a function.
    pub(super) fn entry() -> Self {
        let mut registers = [Value::Unknown; REGISTERS];
        for register in CALLEE_SAVED {
            registers[usize::from(register)] = Value::Entry(register);
        }
        registers[usize::from(RSP)] = Value::Cfa(-8);
        Self {
            registers,
            slots: Vec::new(),
            compared: None,
        }
    }

    pub(super) fn get(&self, register: u8) -> Value {
        self.registers
            .get(usize::from(register))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the value of a 64-bit general-purpose register.
    pub(super) fn of(&self, register: Register) -> Value {
        match register.is_gpr64() {
            true => self.get(register.number() as u8),
            false => Value::Unknown,
        }
    }

    pub(super) fn set(&mut self, register: u8, value: Value) {
        if register == RSP && !matches!(value, Value::Cfa(_) | Value::Aligned(_)) {
            return self.lose_stack_pointer();
        }
        if let Some(old) = self.registers.get_mut(usize::from(register)) {
            *old = value;
        }
    }

    /// Gives the stack pointer an unknown value, to which later ones are relative.
    pub(super) fn lose_stack_pointer(&mut self) {
        let is_aligned = |value: &Value| matches!(value, Value::Aligned(_));
        // An aligned frame pointer leads to the CFA, and must stay so.
        if is_aligned(&self.get(RBP)) {
            self.registers[usize::from(RSP)] = Value::Unknown;
            return;
        }
        for value in self.registers.iter_mut().filter(|value| is_aligned(value)) {
            *value = Value::Unknown;
        }
        let is_lost = |slot: &Slot| is_aligned(&slot.address) || is_aligned(&slot.value);
        self.slots.retain(|slot| !is_lost(slot));
        self.registers[usize::from(RSP)] = Value::Aligned(0);
    }

    /// Moves the stack pointer.
    pub(super) fn move_stack_pointer(&mut self, bytes: i64) {
        self.set(RSP, self.get(RSP).plus(bytes));
    }

    /// Returns the word at an address.
    pub(super) fn load(&self, address: Value) -> Value {
        let slot = self.slots.iter().find(|slot| slot.address == address);
        slot.map_or(Value::Unknown, |slot| slot.value)
    }

    /// Stores a value of `size` bytes at an address. Other addresses are not those of known words.
    pub(super) fn store(&mut self, address: Value, size: usize, value: Value) {
        let distance = |slot: &Slot| match (slot.address, address) {
            (Value::Cfa(slot), Value::Cfa(stored)) => stored.checked_sub(slot),
            (Value::Aligned(slot), Value::Aligned(stored)) => stored.checked_sub(slot),
            _ => None,
        };
        let size_bytes = i64::try_from(size).unwrap_or(i64::MAX);
        let is_hit = |slot: &Slot| {
            distance(slot)
                .is_some_and(|distance| distance < 8 && distance.saturating_add(size_bytes) > 0)
        };
        self.slots.retain(|slot| !is_hit(slot));
        let is_stack = matches!(address, Value::Cfa(_) | Value::Aligned(_));
        if is_stack && size == 8 && value != Value::Unknown && self.slots.len() < MAX_SLOTS {
            self.slots.push(Slot { address, value });
            self.slots.sort_unstable_by_key(|slot| match slot.address {
                Value::Cfa(offset) => (0, offset),
                Value::Aligned(offset) => (1, offset),
                _ => (2, 0),
            });
        }
    }

    /// Applies what a called function may change: registers, and the stack below the stack pointer.
    pub(super) fn call(&mut self) {
        for register in CALLER_SAVED {
            self.set(register, Value::Unknown);
        }
        self.compared = None;
        let sp = self.get(RSP);
        let is_below = |address: Value| match (address, sp) {
            (Value::Cfa(address), Value::Cfa(sp)) => address < sp,
            (Value::Aligned(address), Value::Aligned(sp)) => address < sp,
            _ => false,
        };
        self.slots.retain(|slot| !is_below(slot.address));
    }

    /// Returns what holds in both states.
    pub(super) fn join(&mut self, other: &Self) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            if own != other {
                *own = Value::Unknown;
            }
        }
        self.slots.retain(|slot| other.slots.contains(slot));
        if self.compared != other.compared {
            self.compared = None;
        }
    }

    /// Returns whether the function can return here: all that the caller needs is as at its entry.
    pub(super) fn can_return(&self) -> bool {
        self.get(RSP) == Value::Cfa(-8)
            && CALLEE_SAVED
                .iter()
                .all(|register| self.get(*register) == Value::Entry(*register))
    }

    /// Returns where the caller's value of a register is saved, relative to the CFA.
    pub(super) fn saved(&self, register: u8) -> Option<i64> {
        let lowest = match self.get(RSP) {
            Value::Cfa(sp) => sp,
            _ => i64::MIN,
        };
        let saved = self
            .slots
            .iter()
            .filter(|slot| slot.value == Value::Entry(register));
        let mut saved = saved.filter_map(|slot| match slot.address {
            Value::Cfa(offset) if offset >= lowest => Some(offset),
            _ => None,
        });
        saved.next_back()
    }

    /// Returns whether the caller's value of a register is in any register or stack word.
    pub(super) fn has_entry_value(&self, register: u8) -> bool {
        let words = self.slots.iter().map(|slot| slot.value);
        let mut all = self.registers.iter().copied().chain(words);
        all.any(|value| value == Value::Entry(register))
    }

    /// Returns a measure of the time to compare or copy it: 1 without stack words.
    pub(super) fn weight(&self) -> usize {
        1 + self.slots.len()
    }

    /// Returns the stack words relative to an aligned address that contain an address relative to the
    /// CFA: the two offsets.
    pub(super) fn aligned_links(&self) -> impl Iterator<Item = (i64, i64)> {
        self.slots
            .iter()
            .filter_map(|slot| match (slot.address, slot.value) {
                (Value::Aligned(at), Value::Cfa(offset)) => Some((at, offset)),
                _ => None,
            })
    }

    /// Returns where the caller's value of a register is saved, relative to the aligned address.
    pub(super) fn saved_aligned(&self, register: u8) -> Option<i64> {
        self.slots
            .iter()
            .find_map(|slot| match (slot.address, slot.value) {
                (Value::Aligned(at), Value::Entry(saved)) if saved == register => Some(at),
                _ => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the state after a frame was made: rbx at -16 is saved, and 16 bytes are free.
    fn framed() -> State {
        let mut state = State::entry();
        state.move_stack_pointer(-8);
        state.store(Value::Cfa(-16), 8, Value::Entry(RBX));
        state.move_stack_pointer(-16);
        state
    }

    #[test]
    fn a_function_returns_with_what_it_entered_with() {
        assert!(State::entry().can_return());
        assert!(!framed().can_return());
        for register in CALLEE_SAVED {
            let mut state = State::entry();
            state.set(register, Value::Constant(1));
            assert!(!state.can_return(), "{register}");
            state.set(register, Value::Entry(register));
            assert!(state.can_return());
        }
        let mut state = State::entry();
        state.set(RAX, Value::Constant(1));
        assert!(state.can_return());
    }

    #[test]
    fn saved_registers_are_found_above_the_stack_pointer_only() {
        let mut state = framed();
        assert_eq!(state.saved(RBX), Some(-16));
        assert_eq!(state.saved(RBP), None);
        // A copy nearer to the CFA is not overwritten as soon.
        state.store(Value::Cfa(-24), 8, Value::Entry(RBX));
        assert_eq!(state.saved(RBX), Some(-16));
        state.set(RBX, Value::Unknown);
        state.move_stack_pointer(24);
        assert_eq!(state.saved(RBX), None);
        assert!(state.has_entry_value(RBX));
    }

    #[test]
    fn stores_replace_overlapped_words() {
        for (offset, size, is_kept) in [
            (-24, 8, true),
            (-23, 8, false),
            (-9, 1, false),
            (-8, 8, true),
            (-32, 64, false),
            (i64::MIN, usize::MAX, false),
            (i64::MAX, 8, true),
        ] {
            let mut state = framed();
            state.store(Value::Cfa(offset), size, Value::Unknown);
            let word = state.load(Value::Cfa(-16));
            assert_eq!(word == Value::Entry(RBX), is_kept, "{offset} {size}");
        }
        // Words relative to another address are others.
        let mut state = framed();
        state.store(Value::Aligned(-16), 8, Value::Constant(1));
        state.store(Value::Unknown, 8, Value::Constant(1));
        assert_eq!(state.load(Value::Cfa(-16)), Value::Entry(RBX));
        assert_eq!(state.load(Value::Aligned(-16)), Value::Constant(1));
        assert_eq!(state.load(Value::Unknown), Value::Unknown);
    }

    #[test]
    fn words_are_limited() {
        let mut state = State::entry();
        for word in 0..2 * MAX_SLOTS as i64 {
            state.store(Value::Cfa(-16 - 8 * word), 8, Value::Constant(1));
        }
        assert_eq!(state.weight(), 1 + MAX_SLOTS);
    }

    #[test]
    fn a_join_keeps_what_both_states_have() {
        let (mut state, mut other) = (framed(), framed());
        other.set(RBP, Value::Constant(0));
        other.store(Value::Cfa(-24), 8, Value::Constant(1));
        state.compared = Some(3);
        state.join(&other);
        assert_eq!(state.get(RBP), Value::Unknown);
        assert_eq!(state.get(RBX), Value::Entry(RBX));
        assert_eq!(state.saved(RBX), Some(-16));
        assert_eq!(state.load(Value::Cfa(-24)), Value::Unknown);
        assert_eq!(state.compared, None);
        let known = state.clone();
        state.join(&known);
        assert_eq!(state, known);
    }

    #[test]
    fn only_one_address_is_unknown() {
        let mut state = framed();
        state.lose_stack_pointer();
        state.set(RAX, Value::Aligned(8));
        state.store(Value::Aligned(-8), 8, Value::Cfa(0));
        assert_eq!(state.aligned_links().next(), Some((-8, 0)));
        // rbp does not depend on it, so a new one replaces it.
        state.lose_stack_pointer();
        assert_eq!(state.get(RAX), Value::Unknown);
        assert_eq!(state.aligned_links().next(), None);
        assert_eq!(state.saved(RBX), Some(-16));
        // A frame pointer keeps it.
        state.set(RBP, Value::Aligned(0));
        state.store(Value::Aligned(-8), 8, Value::Cfa(0));
        state.lose_stack_pointer();
        assert_eq!(state.get(RSP), Value::Unknown);
        assert_eq!(state.aligned_links().next(), Some((-8, 0)));
    }

    #[test]
    fn addresses_do_not_overflow() {
        assert_eq!(Value::Cfa(i64::MIN).plus(-1), Value::Unknown);
        assert_eq!(Value::Aligned(i64::MAX).plus(1), Value::Unknown);
        assert_eq!(Value::Constant(0).plus(-1), Value::Constant(u64::MAX));
        assert_eq!(Value::Entry(RBX).plus(0), Value::Entry(RBX));
        assert_eq!(Value::Entry(RBX).plus(8), Value::Unknown);
        let mut state = State::entry();
        state.set(RSP, Value::Cfa(i64::MIN));
        state.move_stack_pointer(-8);
        assert_eq!(state.get(RSP), Value::Aligned(0));
    }
}
