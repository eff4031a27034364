use super::*;

fn reader(bytes: &[u8]) -> Reader {
    Reader::new(Bytes::copy_from_slice(bytes))
}

#[test]
fn both_forms_of_every_length_come_back() {
    for flexible in [false, true] {
        let mut writer = Writer::with_capacity(0);
        writer.string("tópic", flexible, "a");
        writer.null_string(flexible);
        writer.bytes(&Bytes::from_static(b"xyz"), flexible, "b");
        writer.null(flexible);
        writer.array(2, flexible, "c");
        writer.i32_elements(&[i32::MIN, 7]);
        writer.uuid(crate::Uuid::METADATA_TOPIC);
        writer.f64(-0.5);
        let frame = writer.finish().expect("all fields fit").into_bytes();

        let mut reader = Reader::new(frame);
        assert_eq!(reader.string(flexible, "a").as_deref(), Ok("tópic"));
        assert_eq!(reader.nullable_string(flexible, "a"), Ok(None));
        assert_eq!(reader.bytes(flexible, "b").as_deref(), Ok(&b"xyz"[..]));
        assert_eq!(reader.bytes(flexible, "b"), Err(DecodeError::Null { field: "b" }));
        let count = reader.array(flexible, "c").expect("an array");
        assert_eq!(reader.i32_elements(count), Ok(vec![i32::MIN, 7]));
        assert_eq!(reader.uuid(), Ok(crate::Uuid::METADATA_TOPIC));
        assert_eq!(reader.f64(), Ok(-0.5));
        assert_eq!(reader.remaining(), 0);
        assert_eq!(reader.i8(), Err(DecodeError::Truncated { wanted: 1, left: 0 }));
    }
}

#[test]
fn hostile_lengths_are_refused_before_memory_is_taken() {
    let mut huge_array = reader(&[0x7f, 0xff, 0xff, 0xff, 0]);
    assert!(matches!(huge_array.array(false, "a"), Err(DecodeError::ArrayTooLong { .. })));
    let mut huge_bytes = reader(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    assert!(matches!(huge_bytes.bytes(true, "a"), Err(DecodeError::Truncated { .. })));
    let mut long_string = reader(&[0x81, 0x80, 0x02]);
    let expected = DecodeError::StringTooLong { field: "a", bytes: 32_768 };
    assert_eq!(long_string.string(true, "a"), Err(expected));
    assert_eq!(reader(&[0x91, 0x4e]).tag_count(), Err(DecodeError::TooManyTags(10_001)));
    assert_eq!(reader(&[5, 0]).tag_count(), Err(DecodeError::TooManyTags(5)));
    assert_eq!(reader(&[0x80; 6]).unsigned_varint(), Err(DecodeError::VarintTooLong));
    let many = Bytes::from(vec![0; ARRAY_ELEMENTS_MAX + 5]);
    assert_eq!(Reader::new(many).capacity(ARRAY_ELEMENTS_MAX, 1_000), 1_001);
    let mut million = BytesOf(&1_000_001_i32.to_be_bytes()).padded(1_000_001);
    assert!(matches!(million.array(false, "a"), Err(DecodeError::ArrayTooLong { .. })));
}

struct BytesOf<'a>(&'a [u8]);

impl BytesOf<'_> {
    fn padded(&self, zeros: usize) -> Reader {
        let mut bytes = self.0.to_vec();
        bytes.resize(bytes.len() + zeros, 0);
        Reader::new(Bytes::from(bytes))
    }
}

#[test]
fn what_is_not_utf8_is_replaced_as_in_java() {
    let mut text = reader(&[0, 3, b'a', 0xff, b'b']);
    assert_eq!(text.string(false, "a").as_deref(), Ok("a\u{fffd}b"));
}

#[test]
fn large_records_are_parts_and_files_are_gaps() {
    let large = Bytes::from(vec![7; RECORDS_APART_BYTES_MIN]);
    let write = |mut writer: Writer| {
        writer.i16(1);
        writer.records(&Records::Bytes(Bytes::from_static(b"small")), false, "r");
        writer.records(&Records::Bytes(large.clone()), true, "r");
        writer.records(&Records::Elsewhere { length: 9, slot: 3 }, false, "r");
        writer.records(&Records::Elsewhere { length: 0, slot: 4 }, false, "r");
        writer
    };
    let counted = write(Writer::counting());
    let written = write(Writer::with_capacity(counted.buffered_bytes()));
    assert_eq!(counted.len(), written.len());
    assert_eq!(counted.buffered_bytes(), written.buffered_bytes());
    let encoded = written.finish().expect("no error");
    assert_eq!(encoded.length, counted.len());
    let [Part::Bytes(_), Part::Bytes(apart), Part::Bytes(_), gap, Part::Bytes(tail)] =
        encoded.parts.as_slice()
    else {
        panic!("{encoded:?}");
    };
    assert_eq!(apart.as_ptr(), large.as_ptr());
    assert_eq!(gap, &Part::Gap { length: 9, slot: 3 });
    assert_eq!(tail.as_ref(), [0, 0, 0, 0]);
}

#[test]
fn unknown_tags_are_merged_in_order_or_refused() {
    let tags = |tags: &[u32]| {
        UnknownTags(tags.iter().map(|tag| (*tag, Bytes::from_static(b"x"))).collect())
    };
    let write = |unknown: &UnknownTags| {
        let mut writer = Writer::with_capacity(0);
        writer.tag_count(1, unknown);
        writer.known_tag(unknown, 3);
        writer.unknown_tags(unknown, 0, 3);
        writer.tag(3, 0);
        writer.unknown_tags(unknown, 4, UNKNOWN_TAGS_END);
        writer.finish().map(Encoded::into_bytes)
    };
    let bytes = write(&tags(&[1, 5])).expect("in order");
    assert_eq!(bytes.as_ref(), [3, 1, 1, b'x', 3, 0, 5, 1, b'x']);
    assert_eq!(write(&tags(&[5, 1])), Err(EncodeError::TagOutOfOrder(1)));
    assert_eq!(write(&tags(&[3])), Err(EncodeError::TagOutOfOrder(3)));
}

#[test]
fn the_first_error_is_the_one_that_counts() {
    let mut writer = Writer::counting();
    writer.string(&"x".repeat(STRING_BYTES_MAX + 1), true, "a");
    writer.fail(EncodeError::Null { field: "b" });
    let expected = EncodeError::TooLong { field: "a", bytes: STRING_BYTES_MAX + 1 };
    assert_eq!(writer.finish(), Err(expected));
}
