//! The process: a mount, and commands that come line by line.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::disk::{Disk, Failing};
use crate::mount::Mounted;
use crate::random::Random;

/// Serves an empty disk at a mount point until the input ends. The arguments are the mount point
/// and the size in bytes. Each line of the input is a command, and each is answered by a line that
/// begins with `ok` or says what is wrong; the first one says that the disk is there.
pub fn serve(arguments: &[String]) -> ExitCode {
    match try_to_serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("faultfs: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn try_to_serve(arguments: &[String]) -> Result<(), String> {
    let [point, size] = arguments else { return Err("wants a mount point and a size".into()) };
    let size = size.parse().map_err(|error| format!("{size}: {error}"))?;
    let mut mounted = Mounted::new(Disk::new(size), Path::new(point))
        .map_err(|error| format!("mounting at {point}: {error}"))?;
    let mut out = io::stdout();
    let mut say = |line: &str| {
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
    };
    say("ok")?;
    for line in io::stdin().lock().lines() {
        let line = line.map_err(|error| error.to_string())?;
        match perform(&mut mounted, &line) {
            Ok(answer) => say(&answer)?,
            Err(sentence) => say(&format!("{line}: {sentence}"))?,
        }
    }
    Ok(())
}

fn perform(mounted: &mut Mounted, line: &str) -> Result<String, String> {
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["freeze-after", changes] => mounted.freeze_after(number(changes)?),
        ["wait-until-frozen", milliseconds] => {
            let time = Duration::from_millis(number(milliseconds)?);
            return Ok(format!("ok {}", mounted.wait_until_frozen(time)));
        }
        ["cut"] => mounted.cut(),
        ["lose-power"] => come_back(mounted, |disk| disk.lose_power(None))?,
        ["lose-power", seed] => {
            let mut random = Random::new(number(seed)?);
            come_back(mounted, |disk| disk.lose_power(Some(&mut random)))?;
        }
        ["capacity", bytes] => {
            let bytes = number(bytes)?;
            mounted.with_disk(|disk| disk.set_capacity(bytes));
        }
        ["free", bytes] => {
            let bytes = number(bytes)?;
            mounted.with_disk(|disk| disk.set_free(bytes));
        }
        ["fail"] => fail(mounted, None)?,
        ["fail", what, path] => {
            let what = match *what {
                "all" => Failing::All,
                "writes" => Failing::Writes,
                "syncs" => Failing::Syncs,
                _ => return Err("no such failure".into()),
            };
            fail(mounted, Some((path, what)))?;
        }
        _ => return Err("no such command".into()),
    }
    Ok("ok".into())
}

fn come_back(mounted: &mut Mounted, change: impl FnOnce(&mut Disk)) -> Result<(), String> {
    mounted.come_back(change).map_err(|error| error.to_string())
}

fn fail(mounted: &mut Mounted, failing: Option<(&str, Failing)>) -> Result<(), String> {
    let set = mounted.with_disk(|disk| disk.set_failing(failing));
    set.map_err(|error| format!("error {}", i32::from(error)))
}
