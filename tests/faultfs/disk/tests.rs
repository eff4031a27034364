use super::*;

const SPACE: u64 = 1 << 20;

fn name(text: &str) -> &OsStr {
    OsStr::new(text)
}

/// All paths below a directory, with what the files hold.
fn tree(disk: &Disk, directory: Inode, path: &str, found: &mut Vec<String>) {
    for (name, inode, is_directory) in disk.list(directory).expect("it is there") {
        let path = format!("{path}/{}", name.display());
        if is_directory {
            found.push(path.clone());
            tree(disk, inode, &path, found);
        } else {
            let bytes = disk.read(inode, 0, SPACE).expect("it is there");
            found.push(format!("{path}={}", String::from_utf8_lossy(&bytes)));
        }
    }
}

#[track_caller]
fn has(disk: &Disk, expected: &[&str]) {
    let mut found = Vec::new();
    tree(disk, ROOT, "", &mut found);
    assert_eq!(found, expected);
}

fn file(disk: &mut Disk, directory: Inode, called: &str, bytes: &str) -> Inode {
    let inode = disk.create(directory, name(called), 0o644, false).expect("it is new");
    disk.write(inode, 0, bytes.as_bytes()).expect("there is room");
    inode
}

#[test]
fn a_name_needs_the_sync_of_its_directory_and_bytes_that_of_their_file() {
    let mut disk = Disk::new(SPACE);
    let both = file(&mut disk, ROOT, "both", "x");
    file(&mut disk, ROOT, "name", "x");
    disk.sync(both).expect("syncs");
    disk.sync(ROOT).expect("syncs");
    let bytes = file(&mut disk, ROOT, "bytes", "x");
    disk.sync(bytes).expect("syncs");
    has(&disk, &["/both=x", "/bytes=x", "/name=x"]);
    disk.lose_power(None);
    has(&disk, &["/both=x", "/name="]);
}

#[test]
fn each_directory_is_synced_by_itself() {
    let mut disk = Disk::new(SPACE);
    let outer = disk.create(ROOT, name("outer"), 0o755, true).expect("it is new");
    let inner = file(&mut disk, outer, "inner", "x");
    disk.sync(inner).expect("syncs");
    disk.sync(ROOT).expect("syncs");
    disk.lose_power(None);
    has(&disk, &["/outer"]);
    let inner = file(&mut disk, outer, "inner", "x");
    disk.sync(inner).expect("syncs");
    disk.sync(outer).expect("syncs");
    disk.lose_power(None);
    has(&disk, &["/outer", "/outer/inner=x"]);
}

#[test]
fn removals_and_renames_come_undone() {
    let mut disk = Disk::new(SPACE);
    for called in ["a", "b", "c"] {
        let inode = file(&mut disk, ROOT, called, called);
        disk.sync(inode).expect("syncs");
    }
    disk.sync(ROOT).expect("syncs");
    let change = |disk: &mut Disk| {
        disk.remove(ROOT, name("a"), false).expect("it is there");
        disk.rename((ROOT, name("b")), (ROOT, name("c")), true).expect("it is there");
        has(disk, &["/c=b"]);
    };
    change(&mut disk);
    disk.lose_power(None);
    has(&disk, &["/a=a", "/b=b", "/c=c"]);
    change(&mut disk);
    disk.sync(ROOT).expect("syncs");
    disk.lose_power(None);
    has(&disk, &["/c=b"]);
}

#[test]
fn a_name_moved_between_directories_is_never_in_both_or_in_none() {
    for synced in ["from", "to"] {
        let mut disk = Disk::new(SPACE);
        let from = disk.create(ROOT, name("from"), 0o755, true).expect("it is new");
        let to = disk.create(ROOT, name("to"), 0o755, true).expect("it is new");
        disk.sync(ROOT).expect("syncs");
        file(&mut disk, from, "moved", "");
        file(&mut disk, ROOT, "other", "");
        disk.rename((from, name("moved")), (to, name("moved")), true).expect("it is there");
        disk.sync(if synced == "from" { from } else { to }).expect("syncs");
        disk.lose_power(None);
        has(&disk, &["/from", "/to", "/to/moved="]);
    }
}

#[test]
fn some_of_what_was_not_synced_may_be_left_and_all_of_what_was() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let mut disk = Disk::new(SPACE);
        let kept = file(&mut disk, ROOT, "kept", "x");
        disk.sync(kept).expect("syncs");
        disk.sync(ROOT).expect("syncs");
        for called in ["a", "b", "c", "d"] {
            file(&mut disk, ROOT, called, "y");
        }
        disk.lose_power(Some(&mut Random::new(seed)));
        let mut found = Vec::new();
        tree(&disk, ROOT, "", &mut found);
        assert!(found.contains(&"/kept=x".to_owned()), "{found:?}");
        seen.insert(found);
    }
    assert!(seen.len() > 20, "only {} different outcomes", seen.len());
    assert!(seen.iter().any(|found| found.len() == 1));
}

#[test]
fn a_full_disk_takes_nothing_more_until_something_is_removed_and_closed() {
    let mut disk = Disk::new(8192);
    let large = file(&mut disk, ROOT, "large", "x");
    disk.allocate(large, 0, 8192, false).expect("there is room");
    assert_eq!(disk.attributes(large).expect("it is there").length, 1);
    let small = disk.create(ROOT, name("small"), 0o644, false).expect("a name takes no space");
    let no_space = |answer: Answer<()>| assert_eq!(answer.map_err(i32::from), Err(28));
    no_space(disk.write(small, 0, b"x"));
    no_space(disk.allocate(small, 0, 1, false));
    disk.write(large, 4096, b"x").expect("its space is its own");
    disk.open(large).expect("it is there");
    disk.remove(ROOT, name("large"), false).expect("it is there");
    no_space(disk.write(small, 0, b"x"));
    disk.close(large).expect("it is open");
    assert_eq!(disk.space(), (8192, 8192));
    disk.write(small, 0, b"x").expect("there is room");
    disk.set_free(4096);
    disk.write(small, 4096, b"x").expect("there is room");
    no_space(disk.write(small, 8192, b"x"));
    disk.set_capacity(SPACE);
    disk.write(small, 8192, b"x").expect("there is room");
}

#[test]
fn a_directory_that_fails_takes_no_other_with_it() {
    let mut disk = Disk::new(SPACE);
    let sound = file(&mut disk, ROOT, "sound", "x");
    let failing = disk.create(ROOT, name("failing"), 0o755, true).expect("it is new");
    let inner = disk.create(failing, name("inner"), 0o755, true).expect("it is new");
    let below = file(&mut disk, inner, "below", "x");
    let error = |answer: Answer<()>| assert_eq!(answer.map_err(i32::from), Err(5));
    disk.set_failing(Some(("failing", Failing::Writes))).expect("it is there");
    error(disk.write(below, 0, b"y"));
    error(disk.sync(below));
    error(disk.rename((ROOT, name("sound")), (inner, name("sound")), true));
    disk.read(below, 0, 1).expect("reads");
    disk.set_failing(Some(("/failing", Failing::All))).expect("it is there");
    error(disk.read(below, 0, 1).map(drop));
    error(disk.list(failing).map(drop));
    disk.write(sound, 0, b"y").expect("writes");
    disk.sync(sound).expect("syncs");
    disk.set_failing(Some(("failing", Failing::Syncs))).expect("it is there");
    disk.write(below, 0, b"z").expect("writes");
    error(disk.sync(below));
    disk.set_failing(None).expect("none is always there");
    disk.sync(below).expect("syncs");
    disk.sync(inner).expect("syncs");
    disk.sync(failing).expect("syncs");
    disk.sync(ROOT).expect("syncs");
    disk.lose_power(None);
    // The byte went with the sync that failed.
    has(&disk, &["/failing", "/failing/inner", "/failing/inner/below=\0", "/sound=y"]);
}

#[test]
fn what_nobody_can_reach_is_forgotten() {
    let mut disk = Disk::new(SPACE);
    for _ in 0..FORGET_EVERY {
        file(&mut disk, ROOT, "a", "x");
        disk.remove(ROOT, name("a"), false).expect("it is there");
        disk.sync(ROOT).expect("syncs");
    }
    assert!(disk.nodes.len() <= FORGET_EVERY as usize / 2 + 2, "{}", disk.nodes.len());
    assert_eq!(disk.space(), (SPACE, SPACE));
}
