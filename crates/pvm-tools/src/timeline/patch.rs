//! JSON merge patches (RFC 7396): what has changed between two values.
use serde_json::{Map, Value};

/// Returns the patch that makes `new` out of `old`, both objects in which no value is null; `None` if they are equal.
pub fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return (old != new).then(|| new.clone()) };
    let gone = old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = new.iter().filter_map(|(key, value)| match old.get(key) {
        Some(before) => Some((key.clone(), difference(before, value)?)),
        None => Some((key.clone(), value.clone())),
    });
    let patch: Map<String, Value> = gone.chain(changed).collect();
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Changes a value as the patch says.
pub fn apply(value: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *value = patch;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(value) = value else { return };
    for (key, change) in patch {
        match change {
            Value::Null => drop(value.remove(&key)),
            change => apply(value.entry(key).or_insert(Value::Null), change),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_makes_the_new_value_out_of_the_old_one() {
        let values = [
            json!({}),
            json!({ "tasks": { "t40001": { "state": "computes", "sent": [[1, 2], [0, 0]] } } }),
            json!({ "tasks": { "t40001": { "state": "waits", "sent": [[1, 2], [0, 0]], "wait": { "call": "recv" } } } }),
            json!({ "tasks": { "t40002": { "state": "starts" } }, "groups": {} }),
            json!({ "tasks": {}, "deadlocks": [{ "text": "a" }] }),
            json!({ "tasks": {}, "deadlocks": [] }),
        ];
        for (old, new) in values.iter().flat_map(|old| values.iter().map(move |new| (old, new))) {
            let mut value = old.clone();
            match difference(old, new) {
                Some(patch) => apply(&mut value, patch),
                None => assert_eq!(old, new),
            }
            assert_eq!(&value, new);
        }
        let patch = difference(&values[1], &values[2]).unwrap();
        assert_eq!(patch, json!({ "tasks": { "t40001": { "state": "waits", "wait": { "call": "recv" } } } }));
    }
}
