//! The part of EDN that histories need, read into the same values as JSON: a keyword, a symbol and
//! a character become text, a set and a list become an array, and a tag is skipped.

use serde_json::{Map, Number, Value};

/// Reads all values of a text. The error says what is wrong, and in which line.
pub(crate) fn read(text: &str) -> Result<Vec<Value>, String> {
    let mut reader = Reader { text, at: 0 };
    let mut values = Vec::new();
    let read = loop {
        match reader.value() {
            Ok(Some(value)) => values.push(value),
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    match read {
        Ok(()) if reader.rest().is_empty() => Ok(values),
        Ok(()) => Err(reader.located("a bracket that closes nothing")),
        Err(error) => Err(reader.located(&error)),
    }
}

/// Writes a value: the names of maps, and the texts under `type` and `f`, become keywords.
pub(crate) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            out.push('{');
            for (nth, (name, value)) in map.iter().enumerate() {
                out.push_str(if nth == 0 { ":" } else { ", :" });
                out.push_str(name);
                out.push(' ');
                match value.as_str().filter(|text| is_name(name) && is_keyword(text)) {
                    Some(keyword) => {
                        out.push(':');
                        out.push_str(keyword);
                    }
                    None => write(value, out),
                }
            }
            out.push('}');
        }
        Value::Array(values) => {
            out.push('[');
            for (nth, value) in values.iter().enumerate() {
                if nth > 0 {
                    out.push(' ');
                }
                write(value, out);
            }
            out.push(']');
        }
        Value::Null => out.push_str("nil"),
        // The escapes of JSON are those of EDN.
        other => out.push_str(&other.to_string()),
    }
}

fn is_name(name: &str) -> bool {
    matches!(name, "type" | "f")
}

fn is_keyword(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(allowed)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn located(&self, error: &str) -> String {
        let line = self.text[..self.at].matches('\n').count() + 1;
        format!("line {line}: {error}")
    }

    fn peek(&mut self) -> Option<char> {
        loop {
            let rest = self.rest();
            let space = |c: char| c.is_whitespace() || c == ',';
            self.at += rest.len() - rest.trim_start_matches(space).len();
            if !self.rest().starts_with(';') {
                return self.rest().chars().next();
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    /// The next value; `None` at the end, and before a bracket that closes.
    fn value(&mut self) -> Result<Option<Value>, String> {
        let Some(first) = self.peek() else { return Ok(None) };
        let rest = self.rest();
        match first {
            ')' | ']' | '}' => return Ok(None),
            '{' => return self.map().map(Some),
            '[' | '(' => return self.values(1, if first == '[' { ']' } else { ')' }).map(Some),
            '"' => return self.string().map(Some),
            '#' if rest.starts_with("#{") => return self.values(2, '}').map(Some),
            '#' => {
                // `#_` drops a value, another tag says what kind of value comes.
                let drops = rest.starts_with("#_");
                if drops {
                    self.at += 2;
                } else {
                    self.word();
                }
                let value = self.value()?.ok_or("a tag without a value")?;
                return if drops { self.value() } else { Ok(Some(value)) };
            }
            _ => {}
        }
        let word = self.word();
        let number = word.trim_end_matches(['N', 'M']);
        Ok(Some(match word {
            "nil" => Value::Null,
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ => match number.parse::<Number>() {
                Ok(number) => Value::Number(number),
                Err(_) => Value::String(word.trim_start_matches(':').to_owned()),
            },
        }))
    }

    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let ends = |c: char| c.is_whitespace() || ",;\"(){}[]".contains(c);
        let end = rest.find(ends).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn close(&mut self, bracket: char) -> Result<(), String> {
        match self.peek() {
            Some(found) if found == bracket => {
                self.at += 1;
                Ok(())
            }
            _ => Err(format!("{bracket:?} is missing")),
        }
    }

    fn values(&mut self, opening: usize, bracket: char) -> Result<Value, String> {
        self.at += opening;
        let mut values = Vec::new();
        while let Some(value) = self.value()? {
            values.push(value);
        }
        self.close(bracket)?;
        Ok(Value::Array(values))
    }

    fn map(&mut self) -> Result<Value, String> {
        let Value::Array(values) = self.values(1, '}')? else { return Ok(Value::Null) };
        if values.len() % 2 == 1 {
            return Err("a name without a value".to_owned());
        }
        let name = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let pairs = values.chunks_exact(2).map(|pair| (name(&pair[0]), pair[1].clone()));
        Ok(Value::Object(Map::from_iter(pairs)))
    }

    fn string(&mut self) -> Result<Value, String> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest[1..].find(|c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        let literal = &rest[..end.ok_or("a text without an end")? + 2];
        // A text of EDN may go over several lines.
        let literal_of_json = literal.replace('\n', "\\n").replace('\t', "\\t");
        let value = serde_json::from_str(&literal_of_json).map_err(|error| error.to_string())?;
        self.at += literal.len();
        Ok(value)
    }
}
