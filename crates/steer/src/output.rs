//! Standard output, whose reader may leave early: `steer get pods | head -1`.

use std::{
    fmt,
    io::{self, Write as _},
    process,
};

/// As the standard library's, but the command ends quietly when nobody reads any more.
macro_rules! print {
    ($($text:tt)*) => { $crate::output::print(format_args!($($text)*)) };
}

/// As the standard library's, but the command ends quietly when nobody reads any more.
macro_rules! println {
    () => { $crate::output::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints what a command was asked for.
pub(crate) fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_fmt(text) {
        give_up(&error);
    }
}

/// Prints what a server has to say; it goes on when nobody reads that.
pub(crate) fn tell(text: fmt::Arguments<'_>) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Ends the command because its output cannot be written.
pub(crate) fn give_up(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        process::exit(0);
    }
    eprintln!("error: cannot write the output: {error}");
    process::exit(1);
}
