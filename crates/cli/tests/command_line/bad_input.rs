//! Every wrong flag gets one clear error and leaves nothing behind.

use crate::place::{Place, SMALL};

#[test]
fn models_that_cannot_be_are_refused_by_flag() {
    let place = Place::new();
    for (flags, words) in [
        ("--hidden-dim 100 --n-heads 3", &["--hidden-dim 100 cannot be divided by --n-heads 3"][..]),
        ("--hidden-dim 30", &["--hidden-dim 30 cannot be divided by --n-heads 4"]),
        ("--n-kv-heads 3", &["--n-heads 4 cannot be divided by --n-kv-heads 3"]),
        ("--hidden-dim 60 --n-heads 4", &["a head of 15"]),
        ("--hidden-dim 0", &["--hidden-dim is 0"]),
        ("--n-layers 0", &["--n-layers is 0"]),
        ("--n-heads 0", &["--n-heads is 0"]),
        ("--n-kv-heads 0", &["--n-kv-heads is 0"]),
        ("--intermediate-dim 0", &["--intermediate-dim is 0"]),
        ("--vocab-size 0", &["--vocab-size is 0"]),
        ("--vocab-size 1", &["a vocabulary of at least 2", "--vocab-size 2"]),
        ("--batch-size 0", &["--batch-size is 0"]),
        ("--seq-len 0", &["--seq-len is 0"]),
        ("--rope-theta 0", &["--rope-theta is 0"]),
        ("--size giant", &["no size `giant`", "nano, tiny, small, medium, large, very_large"]),
    ] {
        let size = if flags.contains("--size ") { "" } else { "--size nano" };
        place.refuses(&format!("train {size} {flags}"), words);
    }
}

#[test]
fn numbers_beyond_reason_are_refused_without_overflow() {
    let place = Place::new();
    for (flags, words) in [
        ("--batch-size 99999999999999999999", &["--batch-size"][..]),
        ("--batch-size 18446744073709551615", &["18446744073709551615", "elements"]),
        ("--seq-len 9223372036854775807", &["9223372036854775807", "elements"]),
        ("--hidden-dim 18446744073709551608", &["elements"]),
        ("--vocab-size 18446744073709551615", &["elements"]),
        ("--intermediate-dim 1099511627776", &["elements"]),
        ("--n-layers 18446744073709551615", &["--n-layers 18446744073709551615"]),
        ("--n-layers 1001", &["--n-layers 1001"]),
        ("--n-heads 18446744073709551615", &["cannot be divided"]),
        ("--threads 65536", &["--threads"]),
        ("--eval-every 1 --eval-batch-size 18446744073709551615", &["elements"]),
        ("--memory-limit 1e400GiB", &["--memory-limit"]),
        ("--gradient-accumulation-steps 99999999999", &["--gradient-accumulation-steps"]),
    ] {
        place.refuses(&format!("train --size nano {flags}"), words);
    }
    place.succeeds(&format!(
        "train {SMALL} --num-steps 1 --seed 18446744073709551615 --warmup-steps 18446744073709551615"
    ));
}

#[test]
fn settings_out_of_range_are_refused() {
    let place = Place::new();
    for (flags, words) in [
        ("--learning-rate -1", &["--learning-rate is -1"][..]),
        ("--learning-rate nan", &["--learning-rate is NaN"]),
        ("--learning-rate inf", &["--learning-rate is inf"]),
        ("--learning-rate fast", &["--learning-rate"]),
        ("--weight-decay -0.1", &["--weight-decay is -0.1"]),
        ("--clip -1", &["--clip is -1"]),
        ("--clip nan", &["--clip is NaN"]),
        ("--batch-size -4", &["--batch-size"]),
        ("--num-steps 0", &["--num-steps"]),
        ("--log-interval 0", &["--log-interval"]),
        ("--save ck --save-every 0", &["--save-every"]),
        ("--save ck --keep 0", &["--keep"]),
        ("--gradient-accumulation-steps 0", &["--gradient-accumulation-steps"]),
        ("--threads 0", &["--threads"]),
        ("--lr-schedule exponential", &["constant", "linear", "cosine", "wsd"]),
        ("--lr-floor 0.1", &["--lr-floor has no effect with --lr-schedule constant", "linear, cosine and wsd"]),
        ("--lr-schedule cosine --lr-floor 1.5", &["--lr-floor is 1.5", "from 0 to 1"]),
        ("--lr-schedule cosine --lr-decay-steps 3", &["--lr-decay-steps has no effect", "wsd"]),
        ("--betas 0.9,1", &["--betas", "from 0 to below 1"]),
        ("--betas 0.9", &["two shares", "0.9,0.95"]),
        ("--eps 0", &["--eps is 0"]),
        ("--memory-limit lots", &["--memory-limit lots"]),
        ("--memory-limit 4XB", &["`XB` is not a unit"]),
        ("--eval-every 1 --eval-batch-size 0", &["--eval-batch-size is 0"]),
    ] {
        place.refuses(&format!("train --size nano {flags}"), words);
    }
}

#[test]
fn what_does_not_exist_is_refused_with_the_choices() {
    let place = Place::new();
    for (flags, words) in [
        ("--device tpu", &["no device `tpu`", "cpu, cuda, cuda:N or null"][..]),
        ("--precision fp4", &["fp4", "fp32"]),
        ("--precision tf32", &["--precision tf32 has no kernels on cpu", "--precision fp32"]),
        ("--use-amp --precision fp32", &["--use-amp", "--precision"]),
        ("--passes v7", &["`v7`"]),
        ("--passes +fuse-everything", &["`fuse-everything`", "fuse-qkv"]),
        ("--frobnicate", &["--frobnicate"]),
        ("leftover", &["leftover"]),
    ] {
        place.refuses(&format!("train --size nano {flags}"), words);
    }
    place.refuses("tarin", &["tarin", "train"]);
}

#[test]
fn flags_that_would_do_nothing_are_refused() {
    let place = Place::new();
    for (flags, words) in [
        ("--eval-batch-size 4", &["--eval-batch-size", "--eval-every"][..]),
        ("--eval-data markov", &["--eval-data", "--eval-every"]),
        ("--save-every 2", &["--save"]),
        ("--keep 2", &["--save"]),
        ("--overwrite", &["--output-dir"]),
        ("--deterministic --no-deterministic", &["--no-deterministic"]),
        ("--validate-setup --save ck", &["--save"]),
        ("--tokenizer t.json", &["`synthetic` is not text"]),
    ] {
        place.refuses(&format!("train --size nano {flags}"), words);
    }
}

#[test]
fn folders_that_cannot_be_written_are_refused() {
    let place = Place::new();
    place.write("file", "mine");
    for (flags, words) in [
        ("--output-dir file", &["file is a file, and a run needs a folder"][..]),
        ("--output-dir file/o", &["cannot make the folder file/o"]),
        ("--output-dir /proc/o", &["/proc/o"]),
        ("--output-dir o --save file", &["file"]),
        ("--output-dir o --save /proc/ck", &["/proc/ck"]),
        ("--output-dir o --save o", &["the same folder"]),
        ("--output-dir o --save ./x/../o", &["the same folder"]),
    ] {
        place.refuses(&format!("train {SMALL} {flags}"), words);
    }
    assert_eq!(place.read("file"), b"mine");
}

#[test]
fn an_instruction_set_that_is_none_is_refused() {
    let place = Place::new();
    let done = place.shell(&format!("HEADROOM_ISA=avx9 $HEADROOM train {SMALL} --num-steps 1"));
    done.is_error(2, "train", &["HEADROOM_ISA is `avx9`", "portable"]);
    let done = place.shell(&format!("HEADROOM_ISA=portable $HEADROOM train {SMALL} --num-steps 1"));
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains("portable"), "the level is said: {}", done.stdout);
}
