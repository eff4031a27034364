//! Which positions of a segment are known to be boundaries between batches.
//!
//! A slice of a segment that begins and ends at a mark needs no look at the file. A segment that
//! is written gets a mark with every batch; older ones are thinned out, so that a sequential
//! reader always finds the next one while the memory stays bounded.

/// Newest marks of a segment that are kept whatever their distance: readers of the tail, and the
/// high watermark, find each of these batches.
const DENSE_MAX: usize = 256;
/// Marks of a segment at most: 64 KB of memory.
const MARKS_MAX: usize = 8192;
/// The distance, in bytes, of marks that are thinned out for the first time.
const SPACING_MIN: u32 = 4096;

/// Reading from `offset` begins at `position`: all batches before it end below the offset, and
/// the one that begins there, if any, does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Relative to the segment's base offset.
    pub(crate) relative_offset: u32,
    pub(crate) position: u32,
}

/// The marks of a segment, both fields rising.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    marks: Vec<Mark>,
    /// Those before this index are thinned out.
    dense_from: usize,
    spacing: u32,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marks: Vec::new(), dense_from: 0, spacing: SPACING_MIN }
    }
}

impl Marks {
    /// Adds the newest mark.
    pub(crate) fn push(&mut self, mark: Mark) {
        if let Some(last) = self.marks.last() {
            assert!(
                mark.relative_offset > last.relative_offset && mark.position > last.position,
                "batches are appended in order: {mark:?} after {last:?}"
            );
        }
        self.marks.push(mark);
        if self.marks.len() - self.dense_from >= 2 * DENSE_MAX {
            self.thin(self.marks.len() - DENSE_MAX);
        }
        if self.dense_from > MARKS_MAX - 2 * DENSE_MAX {
            self.spacing = self.spacing.saturating_mul(2);
            let end = self.dense_from;
            self.dense_from = 0;
            self.thin(end);
        }
    }

    /// The position of `offset`, if it is known exactly.
    pub(crate) fn position_of(&self, offset: u32) -> Option<u32> {
        if offset == 0 {
            return Some(0);
        }
        let index = self.marks.binary_search_by_key(&offset, |mark| mark.relative_offset).ok()?;
        Some(self.marks[index].position)
    }

    /// The last mark at or below `offset`, the beginning of the segment when there is none.
    pub(crate) fn floor(&self, offset: u32) -> Mark {
        let above = self.marks.partition_point(|mark| mark.relative_offset <= offset);
        let first = Mark { relative_offset: 0, position: 0 };
        above.checked_sub(1).map_or(first, |index| self.marks[index])
    }

    /// The last mark at or before `position`.
    pub(crate) fn last_up_to(&self, position: u32) -> Option<Mark> {
        let above = self.marks.partition_point(|mark| mark.position <= position);
        Some(self.marks[above.checked_sub(1)?])
    }

    /// The first mark behind `position`.
    pub(crate) fn first_behind(&self, position: u32) -> Option<Mark> {
        let above = self.marks.partition_point(|mark| mark.position <= position);
        self.marks.get(above).copied()
    }

    /// Drops the marks behind `position`.
    pub(crate) fn truncate_to(&mut self, position: u32) {
        self.marks.retain(|mark| mark.position <= position);
        self.dense_from = self.dense_from.min(self.marks.len());
    }

    /// Thins out everything: the segment is not written any more.
    pub(crate) fn settle(&mut self) {
        self.thin(self.marks.len());
        self.marks.shrink_to_fit();
    }

    /// Thins out the marks from `dense_from` to `end`.
    fn thin(&mut self, end: usize) {
        let mut kept = self.dense_from;
        for index in self.dense_from..end {
            let mark = self.marks[index];
            let before = kept.checked_sub(1).map_or(0, |last| self.marks[last].position);
            if mark.position - before >= self.spacing {
                self.marks[kept] = mark;
                kept += 1;
            }
        }
        self.marks.drain(kept..end);
        self.dense_from = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(index: u32, bytes: u32) -> Mark {
        Mark { relative_offset: index, position: index * bytes }
    }

    #[test]
    fn the_newest_are_dense_and_the_memory_is_bounded() {
        let mut marks = Marks::default();
        for index in 1..4_000_000 {
            marks.push(mark(index, 1000));
            assert!(marks.marks.len() <= MARKS_MAX);
        }
        for index in 4_000_000 - DENSE_MAX as u32..4_000_000 {
            assert_eq!(marks.position_of(index), Some(index * 1000));
        }
        let mut before = mark(0, 0);
        for at in &marks.marks {
            assert_eq!(at.position, at.relative_offset * 1000);
            assert!(at.position - before.position <= 2 * marks.spacing);
            before = *at;
        }
        assert_eq!(marks.position_of(0), Some(0));
        assert_eq!(marks.floor(0), mark(0, 0));
        marks.truncate_to(3_999_990_000);
        assert_eq!(marks.last_up_to(u32::MAX), Some(mark(3_999_990, 1000)));
        assert_eq!(marks.first_behind(3_999_989_000), Some(mark(3_999_990, 1000)));
        assert_eq!(marks.first_behind(3_999_990_000), None);
        marks.settle();
        assert!(marks.marks.len() < MARKS_MAX);
    }
}
