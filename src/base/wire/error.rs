/// Why bytes are not the message that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early, or a length points beyond their end.
    #[error("{wanted} more bytes are needed and {left} are left")]
    Truncated {
        /// How many bytes the next value takes.
        wanted: usize,
        /// How many there are.
        left: usize,
    },
    /// A variable-length integer has more bytes than its type can have.
    #[error("a variable-length integer has too many bytes")]
    VarintTooLong,
    /// Null stands where the schema allows none.
    #[error("{field} must not be null")]
    Null {
        /// The field's name in the schema.
        field: &'static str,
    },
    /// An array claims more elements than there are bytes left, or than any array may have.
    #[error("the array {field} claims {elements} elements")]
    ArrayTooLong {
        /// The field's name in the schema.
        field: &'static str,
        /// What the bytes claim.
        elements: usize,
    },
    /// A string is longer than any string may be.
    #[error("the string {field} claims {bytes} bytes")]
    StringTooLong {
        /// The field's name in the schema.
        field: &'static str,
        /// What the bytes claim.
        bytes: usize,
    },
    /// A structure claims more tagged fields than there are bytes left, or than it may have.
    #[error("a structure claims {0} tagged fields")]
    TooManyTags(u32),
    /// A known tagged field does not fill the size that was given for it.
    #[error("the tagged field {tag} takes {used} bytes of {size}")]
    TagSize {
        /// The tag.
        tag: u32,
        /// What the bytes claim.
        size: usize,
        /// What reading the field took.
        used: usize,
    },
    /// A known tagged field stands in a version that does not have it.
    #[error("the tag {tag} is not valid for version {version}")]
    TagNotInVersion {
        /// The tag.
        tag: u32,
        /// The version of the message.
        version: i16,
    },
    /// The schema has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message's name in the schema.
        message: &'static str,
        /// What was asked for.
        version: i16,
    },
    /// A record of a family has a type that this family does not know.
    #[error("{family} has no record of type {kind}")]
    UnknownRecord {
        /// The family.
        family: &'static str,
        /// The type that the bytes claim.
        kind: i32,
    },
    /// A number stands for nothing that this software knows, and without it there is no request.
    #[error("the {what} {number} is unknown")]
    UnknownElement {
        /// What it should be.
        what: &'static str,
        /// What the bytes claim.
        number: i8,
    },
    /// Bytes follow where the message should end.
    #[error("{0} bytes follow the end")]
    Trailing(usize),
    /// The frame of a metadata record has a version that is not known.
    #[error("the frame version {0} of a metadata record is not known")]
    FrameVersion(u32),
}

/// Why a message cannot be written in a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A field has a value that the version cannot carry and that must not be lost
    /// (Kafka's `UnsupportedVersionException`).
    #[error("version {version} cannot carry {field}")]
    FieldNotInVersion {
        /// The field's name in the schema.
        field: &'static str,
        /// The version of the message.
        version: i16,
    },
    /// The version has no tagged fields at all, and there are some.
    #[error("version {version} cannot carry tagged fields")]
    TagsNotInVersion {
        /// The version of the message.
        version: i16,
    },
    /// A field is null in a version that allows none.
    #[error("{field} must not be null")]
    Null {
        /// The field's name in the schema.
        field: &'static str,
    },
    /// A string or byte field is longer than its length field can say.
    #[error("{field} has {bytes} bytes, too many")]
    TooLong {
        /// The field's name in the schema.
        field: &'static str,
        /// How long it is.
        bytes: usize,
    },
    /// Unknown tagged fields are not in ascending order, or one has the tag of a known field.
    #[error("the unknown tagged field {0} is out of order")]
    TagOutOfOrder(u32),
    /// The schema has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message's name in the schema.
        message: &'static str,
        /// What was asked for.
        version: i16,
    },
}
