//! `strftime` in UTC, with the names of the C locale.

use std::time::{SystemTime, UNIX_EPOCH};

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment as a calendar has it.
struct Moment {
    year: i64,
    /// from 0
    month: usize,
    /// from 1
    day: i64,
    /// days since the first of January
    of_year: i64,
    /// from Sunday
    of_week: i64,
    /// of the day
    second: i64,
    micros: u32,
}

impl Moment {
    fn new(now: SystemTime) -> Moment {
        let (seconds, micros) = match now.duration_since(UNIX_EPOCH) {
            Ok(d) => (i64::try_from(d.as_secs()).unwrap_or(0), d.subsec_micros()),
            Err(e) => (-i64::try_from(e.duration().as_secs()).unwrap_or(0), 0),
        };
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        // years that begin in March have their leap day last: 400 of them are 146,097 days
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let from_march = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let day = from_march - (153 * month_from_march + 2) / 5 + 1;
        let month = (month_from_march + 2) % 12;
        let year = era * 400 + year_of_era + i64::from(month < 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334][month as usize];
        let of_year = before + i64::from(leap && month > 1) + day - 1;
        let of_week = (days + 4).rem_euclid(7);
        Moment { year, month: month as usize, day, of_year, of_week, second, micros }
    }

    /// What one directive stands for; `None`: it is no directive.
    fn directive(&self, letter: char) -> Option<String> {
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let twelve = (hour + 11) % 12 + 1;
        let (day, month) = (DAYS[self.of_week as usize], MONTHS[self.month]);
        Some(match letter {
            'Y' => self.year.to_string(),
            'y' => format!("{:02}", self.year.rem_euclid(100)),
            'C' => format!("{:02}", self.year / 100),
            'm' => format!("{:02}", self.month + 1),
            'B' => month.into(),
            'b' | 'h' => month[..3].into(),
            'd' => format!("{:02}", self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.of_year + 1),
            'A' => day.into(),
            'a' => day[..3].into(),
            'w' => self.of_week.to_string(),
            'u' => ((self.of_week + 6) % 7 + 1).to_string(),
            'U' => format!("{:02}", (self.of_year + 7 - self.of_week) / 7),
            'W' => format!("{:02}", (self.of_year + 7 - (self.of_week + 6) % 7) / 7),
            'H' => format!("{hour:02}"),
            'k' => format!("{hour:2}"),
            'I' => format!("{twelve:02}"),
            'l' => format!("{twelve:2}"),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'f' => format!("{:06}", self.micros),
            'p' => if hour < 12 { "AM" } else { "PM" }.into(),
            'D' | 'x' => format!("{:02}/{:02}/{:02}", self.month + 1, self.day, self.year.rem_euclid(100)),
            'F' => format!("{}-{:02}-{:02}", self.year, self.month + 1, self.day),
            'R' => format!("{hour:02}:{minute:02}"),
            'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            'c' => {
                format!("{} {} {:2} {hour:02}:{minute:02}:{second:02} {}", &day[..3], &month[..3], self.day, self.year)
            }
            // a time without a zone has neither, as Python's `datetime.now()`
            'z' | 'Z' => String::new(),
            'n' => "\n".into(),
            't' => "\t".into(),
            '%' => "%".into(),
            _ => return None,
        })
    }
}

/// A moment as text, as `datetime.now().strftime(format)` gives it where the clock shows UTC.
pub(super) fn strftime(now: SystemTime, format: &str) -> String {
    let moment = Moment::new(now);
    let mut out = String::with_capacity(format.len() + 16);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(mut letter) = chars.next() else {
            out.push('%');
            break;
        };
        // glibc's: no padding
        let bare = letter == '-';
        if bare {
            letter = chars.next().unwrap_or('-');
        }
        match moment.directive(letter) {
            Some(text) if bare => {
                let short = text.trim_start_matches(['0', ' ']);
                out.push_str(if short.is_empty() { "0" } else { short });
            }
            Some(text) => out.push_str(&text),
            None => {
                out.push_str(if bare { "%-" } else { "%" });
                out.push(letter);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_are_those_of_the_calendar() {
        // made with datetime.fromtimestamp(t, timezone.utc).strftime(...)
        let cases = [
            (0, "1970-01-01 Thursday 001 00 00 00:00:00 AM 12 1"),
            (951_782_399, "2000-02-28 Monday 059 09 09 23:59:59 PM 11 28"),
            (951_782_400, "2000-02-29 Tuesday 060 09 09 00:00:00 AM 12 29"),
            (1_709_251_199, "2024-02-29 Thursday 060 08 09 23:59:59 PM 11 29"),
            (1_735_689_599, "2024-12-31 Tuesday 366 52 53 23:59:59 PM 11 31"),
            (4_107_542_400, "2100-03-01 Monday 060 09 09 00:00:00 AM 12 1"),
        ];
        for (seconds, text) in cases {
            let now = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(strftime(now, "%Y-%m-%d %A %j %U %W %H:%M:%S %p %I %-d"), text);
        }
        assert_eq!(strftime(UNIX_EPOCH, "%d %b %Y %% %Q %"), "01 Jan 1970 % %Q %");
    }
}
