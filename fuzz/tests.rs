use super::*;

fn each_version(mut check: impl FnMut(&Schema, &Kind, i16)) {
    for schema in schemas().expect("the texts are well formed") {
        let kind = Kind::named(schema.name()).expect("every schema became a message");
        assert_eq!((kind.first, kind.last), (schema.versions.first, schema.versions.last));
        for version in kind.first..=kind.last {
            check(&schema, kind, version);
        }
    }
}

#[test]
fn every_sample_is_read_and_written_unchanged() {
    let mut random = Random::new(11);
    let mut samples = 0;
    each_version(|schema, kind, version| {
        for shape in Shape::ALL {
            for _ in 0..3 {
                let bytes = sample(&mut random, schema, version, shape);
                let recoded = (kind.recode)(Bytes::copy_from_slice(&bytes), version, version)
                    .unwrap_or_else(|error| panic!("{} {version} {shape:?}: {error}", kind.name));
                assert_eq!(recoded.left, 0, "{} {version} {shape:?}", kind.name);
                let written = recoded.written.expect("its own version carries it");
                assert_eq!(written.as_ref(), bytes, "{} {version} {shape:?}", kind.name);
                samples += 1;
            }
        }
    });
    assert!(samples > 5_000, "{samples}");
}

#[test]
fn no_bytes_make_a_decoder_panic() {
    let mut random = Random::new(12);
    let (mut read, mut refused) = (0, 0);
    each_version(|schema, kind, version| {
        for round in 0..40 {
            let shape = Shape::ALL[usize::try_from(random.below(4)).expect("small")];
            let shape = if shape == Shape::Maximal { Shape::Mixed } else { shape };
            let mut bytes = sample(&mut random, schema, version, shape);
            if round < 5 {
                bytes = vec![0; usize::try_from(random.below(60)).expect("small")];
                random.fill(&mut bytes);
            }
            mutate(&mut random, &mut bytes);
            if decode(kind, version, &bytes) {
                read += 1;
            } else {
                refused += 1;
            }
        }
    });
    assert!(read > 1_000 && refused > 1_000, "{read} were read and {refused} refused");
}

#[test]
fn the_target_takes_any_bytes() {
    let mut random = Random::new(13);
    for _ in 0..20_000 {
        let mut data = vec![0; usize::try_from(random.below(80)).expect("small")];
        random.fill(&mut data);
        decode_any(&data);
    }
}
