#![allow(clippy::unwrap_used)]
use std::io::Read;

use flate2::read::DeflateDecoder;
use proptest::prelude::*;

use super::Deflated;
use super::draft::Draft;
use super::encode::WINDOW;

/// What a draft inflates to, and how long it was deflated. Behind it comes the last block, an empty one.
fn inflated(draft: &mut Draft) -> (Vec<u8>, usize) {
    let Deflated { mut bytes, crc, .. } = draft.deflate();
    let len = bytes.len();
    bytes.extend([3, 0]);
    let mut inflated = Vec::new();
    let mut decoder = DeflateDecoder::new(&bytes[..]);
    decoder.read_to_end(&mut inflated).unwrap();
    assert_eq!(decoder.total_in(), bytes.len() as u64);
    assert_eq!(crc.finalize(), crc32fast::hash(&inflated));
    (inflated, len)
}

#[derive(Clone, Debug)]
enum Step {
    Put(Vec<u8>),
    Text(Vec<u8>),
    Like(Vec<u8>, usize),
    Repeat(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let words = prop_oneof![
        Just("std::vec::Vec<"),
        Just("u8"),
        Just("> (lib.so)\n"),
        Just("\t7f")
    ];
    let text = || {
        let words = proptest::collection::vec(words.clone(), 0..9);
        words.prop_map(|words| words.concat().into_bytes())
    };
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(Step::Put),
        text().prop_map(Step::Text),
        (text(), any::<usize>()).prop_map(|(text, back)| Step::Like(text, back)),
        (any::<usize>(), 1..40_usize).prop_map(|(back, len)| Step::Repeat(back, len)),
        (any::<usize>(), 1..70_000_usize).prop_map(|(back, len)| Step::Repeat(back, len)),
    ]
}

proptest! {
    #[test]
    fn drafts_inflate_to_what_was_put(steps in proptest::collection::vec(step(), 0..20)) {
        let mut draft = Draft::default();
        // Twice: the second must not see anything of the first.
        let mut lengths = [0; 2];
        for deflated in &mut lengths {
            let mut expected: Vec<u8> = Vec::new();
            for step in &steps {
                let place = |back: usize| match expected.len() {
                    0 => None,
                    len => Some(len - 1 - back % len.min(WINDOW)),
                };
                match step {
                    Step::Put(bytes) => {
                        draft.put(bytes);
                        expected.extend(bytes);
                    }
                    Step::Text(text) => {
                        draft.put_text(text);
                        expected.extend(text);
                    }
                    Step::Like(text, back) => {
                        match place(*back) {
                            Some(place) => draft.put_like(text, place),
                            None => draft.put(text),
                        }
                        expected.extend(text);
                    }
                    Step::Repeat(back, len) => {
                        let Some(place) = place(*back) else { continue };
                        prop_assert!(draft.reaches(place));
                        draft.repeat(place, *len);
                        (0..*len).for_each(|at| expected.push(expected[place + at]));
                    }
                }
            }
            prop_assert_eq!(draft.bytes(), &expected);
            let (inflated, len) = inflated(&mut draft);
            prop_assert_eq!(inflated, expected);
            *deflated = len;
        }
        prop_assert_eq!(lengths[0], lengths[1]);
    }
}

#[test]
fn what_repeats_takes_next_to_nothing() {
    let line = b"\t7f3a2b1c main (app)\n".repeat(40);
    for known in [false, true] {
        let mut draft = Draft::default();
        draft.put_text(&line);
        for _ in 0..100 {
            match known {
                true => draft.repeat(draft.len() - line.len(), line.len()),
                false => draft.put_text(&line),
            }
        }
        let (inflated, len) = inflated(&mut draft);
        assert_eq!(inflated, line.repeat(101));
        assert!(len < 1500, "{len} bytes");
    }
}

#[test]
fn nothing_beyond_the_window_is_in_reach() {
    let mut draft = Draft::default();
    assert!(!draft.reaches(0));
    draft.put(&[7; WINDOW]);
    assert!(draft.reaches(0) && !draft.reaches(WINDOW));
    draft.repeat(0, 3);
    assert!(!draft.reaches(2) && draft.reaches(3));
    assert_eq!(inflated(&mut draft).0, [7; WINDOW + 3]);
}
