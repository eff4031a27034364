use std::fmt;

/// One file of schemas.
#[derive(Clone, Debug)]
pub struct SchemaFile {
    /// The enum that its records belong to, if they are a family.
    pub family: Option<String>,
    /// The schemas, in order.
    pub schemas: Vec<Schema>,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What a client asks.
    Request,
    /// What a server answers.
    Response,
    /// What stands before a request or response.
    Header,
    /// Bytes within other messages or files.
    Data,
    /// A record of a metadata log, in a frame with its key and version.
    Metadata,
    /// The key of a record of an internal topic.
    CoordinatorKey,
    /// The value of a record of an internal topic.
    CoordinatorValue,
}

/// Consecutive versions; none if `first` is above `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The lowest one.
    pub first: i16,
    /// The highest one; `i16::MAX` if later ones are included.
    pub last: i16,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Schema {
    /// What it is for.
    pub kind: Kind,
    /// Its API key, or the type of the record.
    pub key: Option<i16>,
    /// Which versions exist.
    pub versions: Versions,
    /// Which of them have tagged fields and compact lengths.
    pub flexible: Versions,
    /// The newest version is not settled yet.
    pub unstable: bool,
    /// Which kinds of listeners take it.
    pub listeners: Vec<String>,
    /// Its own name and fields.
    pub structure: Structure,
    /// Structures that several of its fields share.
    pub shared: Vec<Structure>,
}

/// A name with fields.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The name in the schema.
    pub name: String,
    /// The versions that have it.
    pub versions: Versions,
    /// Its fields in order.
    pub fields: Vec<Field>,
}

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in the schema.
    pub name: String,
    /// What it holds.
    pub of: Type,
    /// The versions that have it.
    pub versions: Versions,
    /// The versions in which it may be null.
    pub nullable: Versions,
    /// Its tag, if it is a tagged field.
    pub tag: Option<u32>,
    /// Its default where that is not zero, empty or false. `null` for null.
    pub default: Option<String>,
    /// A value that the version cannot carry may be lost.
    pub ignorable: bool,
    /// Written without compact lengths even in flexible versions.
    pub inflexible: bool,
    /// The structure that it declares for itself.
    pub fields: Vec<Field>,
}

/// What a field holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // The names are those of the schema.
pub enum Type {
    Bool,
    Int8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Float64,
    Uuid,
    String,
    Bytes,
    Records,
    Structure(String),
    Array(Box<Type>),
}

impl Versions {
    /// No version.
    pub const NONE: Versions = Versions { first: 0, last: -1 };

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.first > self.last
    }

    /// Whether `version` is one of them.
    pub fn contains(self, version: i16) -> bool {
        self.first <= version && version <= self.last
    }

    /// The versions that are in both.
    #[must_use]
    pub fn and(self, other: Versions) -> Versions {
        let (first, last) = (self.first.max(other.first), self.last.min(other.last));
        if first > last { Versions::NONE } else { Versions { first, last } }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Versions { first, last } = *self;
        match last {
            _ if self.is_empty() => formatter.write_str("none"),
            i16::MAX => write!(formatter, "{first}+"),
            _ if first == last => write!(formatter, "{first}"),
            _ => write!(formatter, "{first}-{last}"),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Type::Bool => "bool",
            Type::Int8 => "int8",
            Type::Int16 => "int16",
            Type::Uint16 => "uint16",
            Type::Int32 => "int32",
            Type::Uint32 => "uint32",
            Type::Int64 => "int64",
            Type::Float64 => "float64",
            Type::Uuid => "uuid",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Records => "records",
            Type::Structure(name) => name,
            Type::Array(of) => return write!(formatter, "[]{of}"),
        })
    }
}

impl Field {
    /// Whether some version allows null, so that the field is an `Option`.
    pub fn is_option(&self) -> bool {
        !self.nullable.is_empty()
    }

    /// The name of the structure that it holds, one or many of.
    pub fn structure(&self) -> Option<&str> {
        match &self.of {
            Type::Structure(name) => Some(name),
            Type::Array(of) => match of.as_ref() {
                Type::Structure(name) => Some(name),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Schema {
    /// The name in the schema.
    pub fn name(&self) -> &str {
        &self.structure.name
    }

    /// Every structure of the message, its own first.
    pub fn structures(&self) -> Vec<Structure> {
        let mut all = vec![Structure { versions: self.versions, ..self.structure.clone() }];
        all.extend(self.shared.iter().cloned());
        let mut next = 0;
        while let Some(structure) = all.get(next).cloned() {
            next += 1;
            for field in structure.fields.iter().filter(|field| !field.fields.is_empty()) {
                if let Some(name) = field.structure() {
                    let (name, fields) = (name.to_owned(), field.fields.clone());
                    let versions = field.versions.and(structure.versions);
                    all.push(Structure { name, versions, fields });
                }
            }
        }
        all
    }
}
