//! Numbers in Java's text form.

/// A number as Java prints it (`Double.toString`): at least one digit after the point, and an
/// exponent below 10⁻³ and from 10⁷.
pub fn java_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let size = value.abs();
    if size.is_infinite() {
        return format!("{sign}Infinity");
    }
    if size == 0.0 || (1e-3..1e7).contains(&size) {
        return format!("{sign}{size:?}");
    }
    let scientific = format!("{size:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    let point = if digits.contains('.') { "" } else { ".0" };
    format!("{sign}{digits}{point}E{exponent}")
}
