//! Rust functions whose names a test compares: generics, traits, closures, iterators, formatting.
//!
//! usage: `chains-rust [SECONDS]`      default: 1 s

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hint::black_box;
use std::time::{Duration, Instant};

trait Shape {
    fn area(&self) -> f64;
}

struct Square(f64);

struct Polygon<T, const CORNERS: usize>([T; CORNERS]);

impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}

impl<T: Copy + Into<f64>, const CORNERS: usize> Shape for Polygon<T, CORNERS> {
    fn area(&self) -> f64 {
        let sides = self.0.iter().map(|&side| side.into());
        sides.fold(0.0, |sum, side| sum * 0.5 + side / CORNERS as f64)
    }
}

impl fmt::Display for Square {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "square of {:.3}", self.0)
    }
}

#[inline(never)]
fn areas(round: u64) -> f64 {
    let mut all: Vec<Box<dyn Shape>> = Vec::new();
    for side in 0..40 {
        all.push(Box::new(Square(f64::from(side) + (round % 7) as f64)));
        all.push(Box::new(Polygon([side as f32; 5])));
        all.push(Box::new(Polygon([side; 24])));
    }
    black_box(&all).iter().map(|shape| shape.area()).sum()
}

#[inline(never)]
fn sorted(round: u64) -> u64 {
    let mut prices: Vec<u64> = (0..300).map(|i| (i * 7919 + round) % 1000).collect();
    prices.sort_unstable();
    prices.sort_by_key(|price| price % 10);
    prices.iter().step_by(3).zip(prices.iter().rev()).map(|(a, b)| a ^ b).sum()
}

#[inline(never)]
fn counted(round: u64) -> usize {
    let mut by_name: BTreeMap<String, u64> = BTreeMap::new();
    let mut by_number: HashMap<u64, String> = HashMap::new();
    for i in 0..60 {
        let name = format!("{}, {:?}", Square((i % 20) as f64), Some(round % 3));
        *by_name.entry(name.clone()).or_default() += 1;
        by_number.insert(i % 17, name);
    }
    by_name.len() + by_number.len()
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let end = Instant::now() + Duration::from_secs_f64(seconds.unwrap_or(1.0));
    let mut round = 0;
    while Instant::now() < end {
        black_box((areas(round), sorted(round), counted(round)));
        round += 1;
    }
}
