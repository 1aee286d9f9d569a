//! `docs/src/cli-json.md`: its examples, and what the command writes, fit its schema.

use std::sync::LazyLock;

use serde_json::Value;

testbed::trials![examples_fit_the_schema];

const PAGE: &str = include_str!("../../../docs/src/cli-json.md");

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let (_, schema) = PAGE.split_once("## Schema\n\n```json\n").expect("the page has a schema");
    serde_json::from_str(schema.trim_end().trim_end_matches('`')).expect("the schema is JSON")
});

/// Fails unless the value fits the definition of that name.
pub(crate) fn check(name: &str, value: &Value) {
    let schema = &SCHEMA["$defs"][name];
    assert!(schema.is_object(), "the schema does not define {name}");
    if let Err(fault) = fits(schema, value) {
        panic!("{name}: {fault}: {value}");
    }
}

/// The part of JSON Schema that the page uses; objects have no other properties.
fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        return fits(&SCHEMA["$defs"][name.trim_start_matches("#/$defs/")], value);
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        let faults: Vec<_> = choices.iter().map(|choice| fits(choice, value)).collect();
        return if faults.iter().any(Result::is_ok) { Ok(()) } else { Err(format!("{faults:?}")) };
    }
    if let Some(words) = schema["enum"].as_array() {
        return if words.contains(value) { Ok(()) } else { Err(format!("{value} is none of {words:?}")) };
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let kinds = &schema["type"];
    if kinds != kind && !kinds.as_array().is_some_and(|kinds| kinds.iter().any(|known| known == kind)) {
        return Err(format!("{value} is not of type {kinds}"));
    }
    if let Some(items) = value.as_array() {
        return items.iter().try_for_each(|item| fits(&schema["items"], item));
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        fields.get(name).ok_or_else(|| format!("{name:?} is missing"))?;
    }
    fields.iter().try_for_each(|(name, field)| {
        let known = schema["properties"].get(name).ok_or_else(|| format!("{name:?} is not defined"))?;
        fits(known, field).map_err(|fault| format!("{name}: {fault}"))
    })
}

/// Every command that writes JSON has an example.
async fn examples_fit_the_schema() {
    let (examples, _) = PAGE.split_once("## Schema").unwrap();
    let mut named = Vec::new();
    for example in examples.split("\n### `").skip(1) {
        let (name, rest) = example.split_once('`').unwrap();
        let (_, lines) = rest.split_once("```json\n").unwrap();
        let lines: Vec<_> = lines.split("```").next().unwrap().lines().collect();
        assert!(!lines.is_empty(), "{name}");
        lines.iter().for_each(|line| check(name, &serde_json::from_str(line).unwrap()));
        named.push(name);
    }
    let parts = ["holder", "phase", "store", "failure"];
    let defined = SCHEMA["$defs"].as_object().unwrap().keys().filter(|name| !parts.contains(&name.as_str()));
    assert!(defined.clone().all(|name| named.contains(&name.as_str())), "{named:?}");
    assert_eq!(defined.count(), named.len());
}
