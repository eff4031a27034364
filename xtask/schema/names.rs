/// `ThrottleTimeMs` as `throttle_time_ms`; a word of Rust gets its raw form.
pub(crate) fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    match out.as_str() {
        "type" | "match" | "where" | "use" | "final" => format!("r#{out}"),
        _ => out,
    }
}

/// `UNKNOWN_TOPIC` as `UnknownTopic`.
pub(crate) fn camel(name: &str) -> String {
    let mut out = String::new();
    for word in name.split('_') {
        let mut letters = word.chars();
        out.extend(letters.next());
        out.push_str(&letters.as_str().to_ascii_lowercase());
    }
    out
}
