use crate::model::{Field, Type, Versions};

/// When something happens, seen from code that runs for the versions of a structure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum When {
    Always,
    Never,
    If(String),
}

impl When {
    pub(crate) fn of(versions: Versions, within: Versions) -> When {
        let both = versions.and(within);
        if both.is_empty() {
            return When::Never;
        }
        When::If(match (both.first > within.first, both.last < within.last) {
            (false, false) => return When::Always,
            (true, false) => format!("version >= {}", both.first),
            (false, true) => format!("version <= {}", both.last),
            (true, true) => format!("({}..={}).contains(&version)", both.first, both.last),
        })
    }

    /// As an expression, with the name of a variable in place of a longer condition.
    pub(crate) fn named(&self, variable: &str) -> String {
        match self {
            When::Always => "true".to_owned(),
            When::Never => "false".to_owned(),
            When::If(_) => variable.to_owned(),
        }
    }

    /// `yes` when it happens, else `no`.
    pub(crate) fn choose(&self, yes: &str, no: &str) -> String {
        match self {
            When::Always => yes.to_owned(),
            When::Never => no.to_owned(),
            When::If(condition) if no.is_empty() => format!("if {condition} {{ {yes} }}"),
            When::If(condition) => format!("if {condition} {{ {yes} }} else {{ {no} }}"),
        }
    }
}

/// Codes of errors have a type of their own in the messages of `protocol`.
pub(crate) fn is_error_code(field: &Field) -> bool {
    field.of == Type::Int16 && field.name.ends_with("ErrorCode")
}

/// The Rust type of what a field holds, null aside.
pub(crate) fn rust_type(field: &Field) -> String {
    if is_error_code(field) { "ErrorCode".to_owned() } else { type_name(&field.of) }
}

pub(crate) fn type_name(of: &Type) -> String {
    match of {
        Type::Structure(name) => name.clone(),
        Type::Array(of) => format!("Vec<{}>", type_name(of)),
        Type::String => "Str".to_owned(),
        Type::Bytes => "Bytes".to_owned(),
        Type::Records => "Records".to_owned(),
        Type::Uuid => "Uuid".to_owned(),
        scalar => method(scalar).to_owned(),
    }
}

/// The method of `Reader` and `Writer` for a type of fixed size.
pub(crate) fn method(of: &Type) -> &'static str {
    match of {
        Type::Bool => "bool",
        Type::Int8 => "i8",
        Type::Int16 => "i16",
        Type::Uint16 => "u16",
        Type::Int32 => "i32",
        Type::Uint32 => "u32",
        Type::Int64 => "i64",
        Type::Float64 => "f64",
        Type::Uuid => "uuid",
        Type::String => "string",
        other => unreachable!("{other} has no fixed size"),
    }
}

/// The default as an expression of the field's type.
pub(crate) fn default_value(field: &Field) -> String {
    if field.default.as_deref() == Some("null") {
        return "None".to_owned();
    }
    let given = field.default.as_deref();
    let value = match &field.of {
        _ if is_error_code(field) => format!("ErrorCode({})", given.unwrap_or("0")),
        Type::Bool => given.unwrap_or("false").to_owned(),
        Type::Float64 => given.unwrap_or("0.0").to_owned(),
        Type::Uuid => "Uuid::ZERO".to_owned(),
        Type::String => "Str::new()".to_owned(),
        Type::Bytes => "Bytes::new()".to_owned(),
        // Kafka's default is null even where null cannot be written.
        Type::Records if field.is_option() => return "None".to_owned(),
        Type::Records => "Records::Bytes(Bytes::new())".to_owned(),
        Type::Structure(name) => format!("{name}::default()"),
        Type::Array(_) => "Vec::new()".to_owned(),
        _ => given.unwrap_or("0").to_owned(),
    };
    if field.is_option() { format!("Some({value})") } else { value }
}

/// A condition that holds when the place `value` of the field's type is not the default.
pub(crate) fn differs_from_default(field: &Field, value: &str) -> String {
    let empty_by_default =
        matches!(field.of, Type::String | Type::Bytes | Type::Array(_) | Type::Records);
    match (field.is_option(), field.default.as_deref()) {
        (true, Some("null")) => format!("{value}.is_some()"),
        (true, _) if field.of == Type::Records => format!("{value}.is_some()"),
        (true, _) if empty_by_default => {
            format!("!{value}.as_ref().is_some_and(|value| value.is_empty())")
        }
        (false, _) if empty_by_default => format!("!{value}.is_empty()"),
        (false, _) if field.of == Type::Bool => {
            let negation = if field.default.as_deref() == Some("true") { "!" } else { "" };
            format!("{negation}{value}")
        }
        _ => format!("{value} != {}", default_value(field)),
    }
}
