//! The order of elements after a strategic merge.

use serde_json::Value;

/// What tells elements of a merged list apart: the value of a key, or the element itself.
#[derive(Clone, Copy)]
pub(super) enum Identity<'a> {
    /// The value of this field.
    Key(&'a str),
    /// The whole element.
    Whole,
}

impl Identity<'_> {
    /// What identifies this element; `None` if it lacks its key.
    pub(super) fn of<'v>(&self, element: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Key(key) => element.get(key),
            Self::Whole => Some(element),
        }
    }

    /// Where in the list the same element is.
    pub(super) fn position(&self, list: &[Value], element: &Value) -> Option<usize> {
        let wanted = self.of(element)?;
        list.iter().position(|other| self.of(other) == Some(wanted))
    }
}

/// Puts the elements of `merged` that `wanted` names into its order; the others keep the order
/// of `live`, and each stands before the first named element that followed it there.
pub(super) fn arrange(
    merged: Vec<Value>,
    wanted: &[Value],
    live: &[Value],
    identity: Identity<'_>,
) -> Vec<Value> {
    let (mut named, mut others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|element| identity.position(wanted, element).is_some());
    named.sort_by_key(|element| identity.position(wanted, element));
    others.sort_by_key(|element| identity.position(live, element).unwrap_or(usize::MAX));
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for element in named {
        if let Some(place) = identity.position(live, &element) {
            while let Some(other) =
                others.next_if(|other| identity.position(live, other).is_some_and(|earlier| earlier < place))
            {
                arranged.push(other);
            }
        }
        arranged.push(element);
    }
    arranged.extend(others);
    arranged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn named_elements_take_the_wanted_order_and_others_stay_near_their_place() {
        let cases: [[&[i32]; 4]; 7] = [
            // merged, wanted, live, arranged
            [&[1, 2, 3], &[], &[1, 2, 3], &[1, 2, 3]],
            [&[1, 2, 3], &[3, 2, 1], &[1, 2, 3], &[3, 2, 1]],
            [&[1, 2, 3, 4], &[4], &[1, 2, 3], &[4, 1, 2, 3]],
            [&[1, 2, 3, 4], &[3, 4], &[1, 2, 3], &[1, 2, 3, 4]],
            [&[1, 2, 3], &[3, 1], &[1, 2, 3], &[2, 3, 1]],
            [&[1, 2, 3], &[1, 3], &[1, 2, 3], &[1, 2, 3]],
            [&[5, 6], &[6, 5], &[], &[6, 5]],
        ];
        for [merged, wanted, live, expected] in cases {
            let list = |numbers: &[i32]| numbers.iter().map(|number| json!(number)).collect::<Vec<Value>>();
            assert_eq!(arrange(list(merged), &list(wanted), &list(live), Identity::Whole), list(expected));
        }
    }
}
