//! The times in which threads ran for requests.

use hashbrown::HashMap;

use crate::trace::{Nanos, Tid};

/// Maximum number of spans of a process.
const MAX_SPANS: usize = 1 << 20;
/// Maximum number of threads that run for requests at once.
const MAX_THREADS: usize = 1 << 14;

/// A time in which a thread ran for a request.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: Nanos,
    end: Nanos,
    request: u32,
}

/// The spans of the threads of a process.
#[derive(Debug, Default)]
pub(super) struct ThreadSpans {
    /// What each thread runs for, since when.
    current: HashMap<Tid, (Nanos, u32)>,
    /// In order of time.
    spans: HashMap<Tid, Vec<Span>>,
    count: usize,
    /// Time of the first span that was one too many.
    full_at: Option<Nanos>,
}

impl ThreadSpans {
    /// Says that a thread runs for a request from now on, or for none.
    pub(super) fn switch(&mut self, thread: Tid, now: Nanos, request: Option<u32>) {
        let current = self.current.get(&thread).copied();
        if current.map(|(_, request)| request) == request {
            return;
        }
        if let Some((start, request)) = current {
            self.push(
                thread,
                Span {
                    start,
                    end: now,
                    request,
                },
            );
        }
        match request {
            None => {
                self.current.remove(&thread);
            }
            Some(_) if self.current.len() >= MAX_THREADS && current.is_none() => {
                self.full_from(now);
            }
            Some(request) => {
                self.current.insert(thread, (now, request));
            }
        }
    }

    /// Ends all spans.
    pub(super) fn finish(&mut self, end: Nanos) {
        for (thread, (start, request)) in std::mem::take(&mut self.current) {
            self.push(
                thread,
                Span {
                    start,
                    end,
                    request,
                },
            );
        }
    }

    /// Returns the request for which a thread ran at a time.
    pub(super) fn at(&self, thread: Tid, time: Nanos) -> Option<u32> {
        let spans = self.spans.get(&thread)?;
        let started = spans.partition_point(|span| span.start < time);
        let span = spans.get(started.checked_sub(1)?)?;
        (time <= span.end).then_some(span.request)
    }

    /// Returns the requests for which a thread ran from one time to another, each with its start and end in
    /// there.
    pub(super) fn within(
        &self,
        thread: Tid,
        start: Nanos,
        end: Nanos,
    ) -> impl Iterator<Item = (u32, Nanos, Nanos)> {
        let spans = self.spans.get(&thread).map_or(&[][..], Vec::as_slice);
        let first = spans.partition_point(|span| span.end <= start);
        let spans = spans.iter().skip(first);
        let spans = spans.take_while(move |span| span.start < end);
        spans.map(move |span| (span.request, span.start.max(start), span.end.min(end)))
    }

    /// Returns whether all spans until a time are known.
    pub(super) fn are_known_until(&self, time: Nanos) -> bool {
        self.full_at.is_none_or(|full_at| time <= full_at)
    }

    fn push(&mut self, thread: Tid, span: Span) {
        if self.count >= MAX_SPANS {
            self.full_from(span.start);
            return;
        }
        self.count += 1;
        self.spans.entry(thread).or_default().push(span);
    }

    fn full_from(&mut self, time: Nanos) {
        self.full_at = Some(self.full_at.map_or(time, |at| at.min(time)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_runs_for_one_request_at_a_time() {
        let mut spans = ThreadSpans::default();
        let mut switch = |thread, now, request| spans.switch(Tid(thread), Nanos(now), request);
        switch(1, 10, Some(0));
        switch(1, 12, Some(0));
        switch(2, 12, Some(0));
        switch(1, 20, Some(1));
        switch(1, 30, None);
        switch(1, 40, None);
        spans.finish(Nanos(50));
        let at = |thread, time| spans.at(Tid(thread), Nanos(time));
        let times = [10, 11, 20, 21, 30, 31].map(|time| at(1, time));
        assert_eq!(times, [None, Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!((at(2, 50), at(2, 51), at(3, 20)), (Some(0), None, None));
        let within = |start, end| {
            let within = spans.within(Tid(1), Nanos(start), Nanos(end));
            within
                .map(|(request, start, end)| (request, start.0, end.0))
                .collect::<Vec<_>>()
        };
        assert_eq!(within(0, 50), [(0, 10, 20), (1, 20, 30)]);
        assert_eq!(within(12, 20), [(0, 12, 20)]);
        assert_eq!(within(30, 50), []);
    }

    #[test]
    fn memory_is_bounded() {
        let mut spans = ThreadSpans::default();
        for now in 0..MAX_SPANS as u64 + 10 {
            spans.switch(Tid(1), Nanos(now), Some((now % 2) as u32));
        }
        assert_eq!(spans.count, MAX_SPANS);
        let known = spans.full_at.unwrap();
        assert!(spans.are_known_until(known) && !spans.are_known_until(Nanos(known.0 + 1)));
    }
}
