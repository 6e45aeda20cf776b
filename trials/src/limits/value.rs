//! Computes the values of constants from their expressions.
use anyhow::{Context, Result, bail, ensure};
use std::time::Duration;

/// The value of a constant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number.
    Number(u128),
    /// A duration.
    Time(Duration),
}

impl Value {
    /// Returns the value as text. The unit depends on the name of the constant.
    pub fn with_unit(self, name: &str) -> String {
        match self {
            Value::Number(bytes) if name.contains("BYTES") => with_prefix(bytes),
            Value::Number(number) => with_commas(number),
            Value::Time(time) if time.subsec_millis() != 0 => format!("{} ms", time.as_millis()),
            Value::Time(time) => format!("{} s", time.as_secs()),
        }
    }
}

fn with_prefix(bytes: u128) -> String {
    if bytes == 0 || bytes % 1024 != 0 {
        return format!("{} bytes", with_commas(bytes));
    }
    let (mut parts, mut left) = (Vec::new(), bytes);
    for (unit, shift) in [("GiB", 30), ("MiB", 20), ("KiB", 10)] {
        if left >> shift > 0 {
            parts.push(format!("{} {unit}", with_commas(left >> shift)));
            left &= (1 << shift) - 1;
        }
    }
    parts.join(" + ")
}

fn with_commas(number: u128) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

/// Evaluates an expression of numbers, other constants (`find`), `<<`, `*`, `+`, `-` and parentheses, or a duration
/// whose argument is such an expression.
pub fn evaluate(expression: &str, find: &dyn Fn(&str) -> Result<Value>) -> Result<Value> {
    let made_of = |unit: &str| {
        let inner = expression.strip_prefix("Duration::from_")?.strip_prefix(unit)?;
        inner.strip_prefix('(')?.strip_suffix(')')
    };
    for (unit, make) in [("secs", Duration::from_secs as fn(u64) -> Duration), ("millis", Duration::from_millis)] {
        if let Some(inner) = made_of(unit) {
            return Ok(Value::Time(make(u64::try_from(number(inner, find)?)?)));
        }
    }
    let tokens = tokens(expression)?;
    if let [one] = &tokens[..] {
        if one.starts_with(|c: char| c.is_ascii_uppercase()) {
            return find(one);
        }
    }
    Ok(Value::Number(number(expression, find)?))
}

fn number(expression: &str, find: &dyn Fn(&str) -> Result<Value>) -> Result<u128> {
    let tokens = tokens(expression)?;
    let mut reader = Reader { tokens: &tokens, find };
    let value = reader.sum(0)?;
    ensure!(reader.tokens.is_empty(), "cannot compute `{expression}`: say `Default:`");
    Ok(value)
}

/// Returns the tokens: numbers, operators, and the last name of each path. `as` and the type after it are left out.
fn tokens(expression: &str) -> Result<Vec<String>> {
    let mut tokens = Vec::new();
    let mut rest = expression.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let length = match first {
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("<<") || rest.starts_with(">>") => 2,
            '(' | ')' | '*' | '+' | '-' => 1,
            _ => bail!("cannot compute `{expression}`: say `Default:`"),
        };
        let token = rest[..length].rsplit("::").next().unwrap_or_default();
        match tokens.last().map(String::as_str) {
            Some("as") => drop(tokens.pop()),
            _ => tokens.push(token.to_owned()),
        }
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// The operators; those that bind more strongly come later.
const SIGNS: [&[&str]; 3] = [&["<<", ">>"], &["+", "-"], &["*"]];

struct Reader<'a> {
    tokens: &'a [String],
    find: &'a dyn Fn(&str) -> Result<Value>,
}

impl Reader<'_> {
    fn next(&mut self) -> Result<&str> {
        let (first, rest) = self.tokens.split_first().context("an expression has no end: say `Default:`")?;
        self.tokens = rest;
        Ok(first)
    }

    fn sum(&mut self, strength: usize) -> Result<u128> {
        let Some(signs) = SIGNS.get(strength) else { return self.single() };
        let mut value = self.sum(strength + 1)?;
        while self.tokens.first().is_some_and(|token| signs.contains(&token.as_str())) {
            let sign = self.next()?.to_owned();
            let other = self.sum(strength + 1)?;
            value = match &*sign {
                "<<" => value.checked_shl(u32::try_from(other)?),
                ">>" => value.checked_shr(u32::try_from(other)?),
                "+" => value.checked_add(other),
                "-" => value.checked_sub(other),
                _ => value.checked_mul(other),
            }
            .context("a value is too large")?;
        }
        Ok(value)
    }

    fn single(&mut self) -> Result<u128> {
        let find = self.find;
        match self.next()? {
            "(" => {
                let value = self.sum(0)?;
                ensure!(self.next()? == ")", "a parenthesis is open");
                Ok(value)
            }
            word if word.starts_with("0x") => Ok(u128::from_str_radix(&word[2..].replace('_', ""), 16)?),
            word if word.starts_with(|c: char| c.is_ascii_digit()) => Ok(word.replace('_', "").parse()?),
            "MAX" => bail!("say `Default:`"),
            word => match find(word)? {
                Value::Number(number) => Ok(number),
                Value::Time(_) => bail!("{word} is a time"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(expression: &str) -> Option<Value> {
        evaluate(expression, &|name| match name {
            "MASK" => Ok(Value::Number(0xffff)),
            "WAIT" => Ok(Value::Time(Duration::from_secs(3))),
            _ => bail!("there is none"),
        })
        .ok()
    }

    #[test]
    fn expressions_of_constants_are_computed() {
        for (expression, number) in [
            ("64 << 10", 65_536),
            ("1_000", 1000),
            ("crate::tid::MASK as usize", 65_535),
            ("(0x10 + 2) * 3 - 1", 53),
            ("1 + 2 << 3", 24),
            ("(MASK >> 12) as usize", 15),
        ] {
            assert_eq!(value(expression), Some(Value::Number(number)), "{expression}");
        }
        for none in ["size_of::<u8>()", "usize::MAX", "1 +", "(1", "if x { 1 } else { 2 }", "OTHER", "WAIT * 2"] {
            assert_eq!(value(none), None, "{none}");
        }
    }

    #[test]
    fn values_have_units() {
        let text = |expression: &str, name| value(expression).unwrap().with_unit(name);
        assert_eq!(text("64 << 20", "HELD_BYTES_MAX"), "64 MiB");
        assert_eq!(text("1500", "LINE_BYTES_MAX"), "1,500 bytes");
        assert_eq!(text("(1 << 30) + (1 << 16)", "FRAME_BYTES_MAX"), "1 GiB + 64 KiB");
        assert_eq!(text("MASK as usize", "MEMBERS_MAX"), "65,535");
        assert_eq!(text("Duration::from_millis(2500)", "WAIT"), "2500 ms");
        assert_eq!(text("WAIT", "PATIENCE"), "3 s");
    }
}
