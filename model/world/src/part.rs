//! A part of a world: what steps read and write as a whole, and what can be shared.

use std::cell::Cell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

thread_local! {
    /// How many parts have been looked at since [`Part::forget_reads`] on this thread.
    static READS: Cell<u32> = const { Cell::new(0) };
}

/// A value that knows whether it was looked at, and when among the parts of its world. It may be shared until it is written.
pub(crate) struct Part<T> {
    value: Value<T>,
    /// Its place among the parts that were looked at, from 1; 0 if it was not.
    read: AtomicU32,
}

enum Value<T> {
    Own(T),
    Shared(Arc<T>),
}

impl<T> Part<T> {
    pub(crate) fn new(value: T) -> Part<T> {
        Part { value: Value::Own(value), read: AtomicU32::new(0) }
    }

    pub(crate) fn shared(value: Arc<T>) -> Part<T> {
        Part { value: Value::Shared(value), read: AtomicU32::new(0) }
    }

    /// Parts of this thread are counted anew from here on.
    pub(crate) fn count_anew() {
        READS.set(0);
    }

    /// Its place among the parts that were looked at; `None` if it was not.
    pub(crate) fn read_at(&self) -> Option<u32> {
        let at = self.read.load(Ordering::Relaxed);
        (at > 0).then_some(at)
    }

    /// What was written to a part that was shared. What is still shared was not written.
    pub(crate) fn written(&mut self) -> Option<&mut T> {
        match &mut self.value {
            Value::Own(value) => Some(value),
            Value::Shared(_) => None,
        }
    }

    #[inline]
    fn note_read(&self) {
        if self.read.load(Ordering::Relaxed) == 0 {
            READS.set(READS.get().wrapping_add(1));
            self.read.store(READS.get(), Ordering::Relaxed);
        }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.note_read();
        match &self.value {
            Value::Own(value) => value,
            Value::Shared(value) => value,
        }
    }
}

impl<T: Clone> DerefMut for Part<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        self.note_read();
        if let Value::Shared(value) = &self.value {
            self.value = Value::Own((**value).clone());
        }
        match &mut self.value {
            Value::Own(value) => value,
            Value::Shared(_) => unreachable!("it was just made its own"),
        }
    }
}

impl<T: Clone> Clone for Part<T> {
    fn clone(&self) -> Part<T> {
        match &self.value {
            Value::Own(value) => Part::new(value.clone()),
            Value::Shared(value) => Part::shared(Arc::clone(value)),
        }
    }

    fn clone_from(&mut self, source: &Part<T>) {
        match (&mut self.value, &source.value) {
            (Value::Own(value), Value::Own(source)) => value.clone_from(source),
            _ => *self = source.clone(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<'a, T> IntoIterator for &'a Part<T>
where
    &'a T: IntoIterator,
{
    type Item = <&'a T as IntoIterator>::Item;
    type IntoIter = <&'a T as IntoIterator>::IntoIter;

    fn into_iter(self) -> Self::IntoIter {
        (**self).into_iter()
    }
}
