//! `flamegraph.svg`: a self-contained image with search and zoom.
//!
//! The root is at the top, where a browser opens the image. The colour of a frame shows its kind of code.

use std::hash::BuildHasher;
use std::io::{self, Write};

use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{self, Direction, Options, TextTruncateDirection};
use rustc_hash::FxBuildHasher;

use super::call_tree::{CallTrees, Detail, FoldedStack, FrameCategory, Measure};
use super::sanitize;
use super::short_name::NameStyle;
use crate::trace::Trace;

/// Minimum width of a frame in percent of all samples: one pixel in a window of 2000 pixels.
///
/// Limits the file size: browsers become slow with more than some ten thousand frames.
const MIN_WIDTH_PERCENT: f64 = 0.05;

/// Limits of the image and of the stacks that it is drawn from, in bytes. Both take memory.
const MAX_IMAGE_BYTES: usize = 32 << 20;
const MAX_STACK_BYTES: usize = 256 << 20;
/// Bytes of a frame in the image, beside its name.
const FRAME_BYTES: usize = 200;
/// Maximum depth of the stacks. If the image exceeds its limit, the next one is tried.
const DEPTHS: [usize; 5] = [usize::MAX, 1024, 256, 64, 8];

/// Colours of the legend, in its order. They differ in lightness, for red-green colour blindness.
const LEGEND: [(FrameCategory, &str, [u8; 3]); 9] = [
    (FrameCategory::Process, "process", [188, 183, 208]),
    (FrameCategory::Kernel, "kernel", [226, 124, 62]),
    (FrameCategory::Native, "native", [238, 199, 88]),
    (FrameCategory::Jit, "JIT", [122, 190, 98]),
    (FrameCategory::ReadyToRun, "ReadyToRun", [98, 182, 172]),
    (FrameCategory::Inlined, "inlined", [132, 172, 228]),
    (FrameCategory::Unresolved, "unresolved", [178, 178, 178]),
    (FrameCategory::Truncated, "truncated", [206, 106, 122]),
    (FrameCategory::Blocked, "blocked", [150, 140, 214]),
];

/// Maximum change of a colour channel, which distinguishes adjacent frames.
const VARIATION: i16 = 14;

const BACKGROUND: Color = Color {
    r: 250,
    g: 250,
    b: 250,
};

/// Start of the part of the image that has the frames.
const FRAMES: &str = "<svg id=\"frames\"";
const END: &str = "</svg>";

/// What the keys do, and where that is said.
const KEYS: &str = include_str!("flame_graph_keys.js");
const HINT: &str = "keys: arrows select, Enter zooms, Escape shows all, / searches";

/// Height of the legend, between the text about the frame at the pointer and the frames.
const LEGEND_HEIGHT: usize = 20;
const LEGEND_Y: usize = 76;
/// Baseline of the share that a search has found, below the button.
const MATCHED_Y: usize = 44;

/// Writes the flame graph of `trace` with the title `name`.
///
/// # Errors
/// Returns errors of `out`.
pub fn write(trace: &Trace, names: NameStyle, name: &str, out: &mut impl Write) -> io::Result<()> {
    write_trees(&CallTrees::new(trace, names, false), trace, name, out)
}

/// Writes the flame graph of something else than samples.
///
/// # Errors
/// Returns errors of `out`.
pub(super) fn write_measured(
    trace: &Trace,
    names: NameStyle,
    measure: Measure,
    name: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let trees = CallTrees::measured(trace, names, false, measure);
    write_trees(&trees, trace, name, out)
}

pub(super) fn write_trees(
    trees: &CallTrees<'_>,
    trace: &Trace,
    name: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let total = trees.measure().total(trace);
    let min_total = (total as f64 * MIN_WIDTH_PERCENT / 100.0).ceil() as u64;
    let mut stacks = Stacks::default();
    let mut depth = usize::MAX;
    for max_depth in DEPTHS {
        depth = max_depth;
        let detail = Detail {
            min_total,
            max_depth,
        };
        stacks = Stacks::default();
        // What the last depth has beyond the limits is left out.
        if trees
            .for_each_stack(detail, |stack| stacks.push(&stack))
            .is_ok()
        {
            break;
        }
    }
    let Stacks {
        mut lines,
        mut palette,
        ..
    } = stacks;
    if lines.is_empty() {
        // inferno returns an error for a graph without samples.
        lines.push("no samples 1".to_owned());
    }

    for label in ["", "no samples"] {
        palette.insert(label, color(label, FrameCategory::Process));
    }

    let mut options = Options::default();
    options.title = sanitize::folded(name);
    options.subtitle = Some(sanitize::folded(&subtitle(trace, trees.measure(), depth)));
    let unit = match trees.measure() {
        Measure::Samples => None,
        Measure::BlockedTime | Measure::WaitingTime => Some("µs"),
        Measure::Faults => Some("faults"),
        Measure::Wakeups => Some("wake-ups"),
    };
    if let Some(unit) = unit {
        unit.clone_into(&mut options.count_name);
    }
    options.bgcolors = Some(BackgroundColor::Flat(BACKGROUND));
    options.direction = Direction::Inverted;
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.palette_map = Some(&mut palette);
    options.min_width = MIN_WIDTH_PERCENT;
    options.deterministic = true;
    // The order of the tree keeps equal callers adjacent. inferno would sort lines by bytes, which
    // does not. For a flame chart it keeps the order, and reads from the last line to the first.
    options.flame_chart = true;
    let last_first = lines.iter().rev().map(String::as_str);
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, last_first, &mut svg)?;

    let svg = String::from_utf8(svg).map_err(io::Error::other)?;
    let (head, frames) = svg
        .split_once(FRAMES)
        .ok_or_else(|| io::Error::other("the image has no frames"))?;
    out.write_all(with_room(head).as_bytes())?;
    write!(out, "{FRAMES} y=\"{LEGEND_HEIGHT}\"")?;
    out.write_all(frames.strip_suffix(END).unwrap_or(frames).as_bytes())?;
    write_legend(trees.measure().is_blocked(), out)?;
    out.write_all(END.as_bytes())
}

/// Makes room for the legend in the part of the image before the frames, and shows the share that a
/// search has found at the top.
fn with_room(head: &str) -> String {
    let height = head.split_once("height=\"").map(|(_, rest)| rest);
    let height = height.and_then(|rest| rest.split('"').next()?.parse().ok());
    let height: usize = height.unwrap_or_default();
    let [old, new] = [height, height + LEGEND_HEIGHT];
    // Of the image and of its background.
    let head = head.replacen(
        &format!("height=\"{old}\""),
        &format!("height=\"{new}\""),
        2,
    );
    let head = head.replacen(&format!(" {old}\""), &format!(" {new}\""), 1);
    let Some((start, matched)) = head.split_once("<text id=\"matched\"") else {
        return head;
    };
    let Some((place, rest)) = matched.split_once(" y=\"") else {
        return head;
    };
    let (_, rest) = rest.split_once('"').unwrap_or_default();
    format!("{start}<text id=\"matched\"{place} y=\"{MATCHED_Y}\"{rest}")
}

/// Stacks of the image.
#[derive(Default)]
struct Stacks {
    lines: Vec<String>,
    palette: PaletteMap,
    /// Bytes of `lines`, and about those of the image.
    bytes: usize,
    image_bytes: usize,
}

impl Stacks {
    /// Adds a stack.
    ///
    /// # Errors
    /// The stacks or the image would exceed their limit.
    fn push(&mut self, stack: &FoldedStack<'_>) -> io::Result<()> {
        let line = format!("{} {}", stack.text, stack.samples);
        let new = || stack.labels.iter().rev().take(stack.new_frames);
        let new_bytes = new().map(|(label, _)| FRAME_BYTES + label.len());
        self.bytes += line.len();
        self.image_bytes += new_bytes.sum::<usize>();
        if self.bytes > MAX_STACK_BYTES || self.image_bytes > MAX_IMAGE_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        for &(label, category) in new() {
            if self.palette.get(label).is_none() {
                self.palette.insert(label, color(label, category));
            }
        }
        self.lines.push(line);
        Ok(())
    }
}

/// `depth`: maximum depth of the stacks.
fn subtitle(trace: &Trace, measure: Measure, depth: usize) -> String {
    let info = &trace.info;
    let seconds = info.seconds();
    let cut = match depth {
        usize::MAX => String::new(),
        depth => format!("; frames beyond a depth of {depth} are part of their callers"),
    };
    let warning = trace.quality.losses.incomplete_warning();
    let warning = warning.map_or_else(String::new, |warning| warning + "; ");
    let total = measure.total(trace);
    let what = match measure {
        Measure::Samples => format!("{total} samples of {}", info.event),
        Measure::BlockedTime | Measure::WaitingTime => {
            format!(
                "{:.1} s without a CPU, of threads with work",
                total as f64 / 1e6
            )
        }
        Measure::Faults => format!("{total} page faults"),
        Measure::Wakeups => format!("{total} wake-ups"),
    };
    format!("{warning}{}: {what} in {seconds:.1} s{cut}", info.target)
}

/// Writes the legend above the frames, and the keys that select and zoom.
fn write_legend(is_blocked: bool, out: &mut impl Write) -> io::Result<()> {
    // inferno shows its search at a tenth of full opacity, which is easy to miss.
    write!(
        out,
        "<style type=\"text/css\">#search {{ opacity:0.7; }} .selected rect {{ stroke:black; }}</style>"
    )?;
    write!(out, "<script><![CDATA[{KEYS}]]></script>")?;
    write!(out, r#"<g id="legend">"#)?;
    let mut x = 10;
    let used =
        |(category, ..): &(FrameCategory, _, _)| is_blocked || *category != FrameCategory::Blocked;
    for (_, text, [r, g, b]) in LEGEND.into_iter().filter(used) {
        write!(
            out,
            r#"<rect x="{x}" y="{LEGEND_Y}" width="10" height="9" fill="rgb({r},{g},{b})"/>"#
        )?;
        let text_x = x + 14;
        write!(
            out,
            r#"<text x="{text_x}" y="{LEGEND_Y}" dy="8" style="font-size:10px">{text}</text>"#
        )?;
        x = text_x + 6 * text.len() + 16;
    }
    write!(
        out,
        r#"<text x="{x}" y="{LEGEND_Y}" dy="8" style="font-size:10px" fill="rgb(110,110,110)">{HINT}</text></g>"#
    )
}

/// Returns the colour of a category, made lighter or darker by a hash of the label.
fn color(label: &str, category: FrameCategory) -> Color {
    let base = LEGEND.iter().find(|(other, ..)| *other == category);
    let [r, g, b] = base.map_or([0; 3], |(.., rgb)| *rgb);
    let hash = FxBuildHasher.hash_one(label) % (2 * VARIATION as u64 + 1);
    let change = hash as i16 - VARIATION;
    let channel = |value: u8| (i16::from(value) + change).clamp(0, 255) as u8;
    Color {
        r: channel(r),
        g: channel(g),
        b: channel(b),
    }
}
