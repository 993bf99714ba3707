//! TensorBoard's event file: scalars per step, as protobuf records with masked checksums.

use std::io::{self, Write};

/// Writes the file's first record, which tells readers the format.
pub fn write_start(out: &mut dyn Write, wall_seconds: f64) -> io::Result<()> {
    let mut event = Vec::new();
    field_double(&mut event, 1, wall_seconds);
    field_bytes(&mut event, 3, b"brain.Event:2");
    write_tfrecord(out, &event)
}

/// Writes the values of one step, each under its tag (`train/loss`).
pub fn write_scalars(out: &mut dyn Write, wall_seconds: f64, step: i64, scalars: &[(&str, f32)]) -> io::Result<()> {
    let mut summary = Vec::new();
    for (tag, value) in scalars {
        let mut entry = Vec::new();
        field_bytes(&mut entry, 1, tag.as_bytes());
        field_float(&mut entry, 2, *value);
        field_bytes(&mut summary, 1, &entry);
    }
    let mut event = Vec::new();
    field_double(&mut event, 1, wall_seconds);
    field_varint(&mut event, 2, step as u64);
    field_bytes(&mut event, 5, &summary);
    write_tfrecord(out, &event)
}

/// Writes the length, its checksum, the data and its checksum, all little-endian.
fn write_tfrecord(out: &mut dyn Write, data: &[u8]) -> io::Result<()> {
    let length = (data.len() as u64).to_le_bytes();
    out.write_all(&length)?;
    out.write_all(&masked(crc32c(&length)).to_le_bytes())?;
    out.write_all(data)?;
    out.write_all(&masked(crc32c(data)).to_le_bytes())
}

/// Protobuf wire types.
const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const DELIMITED: u32 = 2;
const FIXED_32: u32 = 5;

fn key(out: &mut Vec<u8>, field: u32, wire_type: u32) {
    varint(out, u64::from(field << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field_varint(out: &mut Vec<u8>, field: u32, value: u64) {
    key(out, field, VARINT);
    varint(out, value);
}

fn field_double(out: &mut Vec<u8>, field: u32, value: f64) {
    key(out, field, FIXED_64);
    out.extend_from_slice(&value.to_le_bytes());
}

fn field_float(out: &mut Vec<u8>, field: u32, value: f32) {
    key(out, field, FIXED_32);
    out.extend_from_slice(&value.to_le_bytes());
}

fn field_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    key(out, field, DELIMITED);
    varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Rotates the checksum and adds a constant, as the format requires: a CRC of data that contains CRCs is weak.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Castagnoli's polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ POLYNOMIAL } else { value >> 1 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
};

fn crc32c(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |sum, byte| sum >> 8 ^ TABLE[usize::from(sum as u8 ^ byte)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_castagnolis() {
        // The check value of CRC-32C in the catalogue of checksums.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    #[test]
    fn numbers_of_many_bits_take_seven_a_byte() {
        let mut bytes = Vec::new();
        varint(&mut bytes, 300);
        assert_eq!(bytes, [0b1010_1100, 0b10]);
    }

    #[test]
    fn a_record_is_framed_by_its_length_and_two_checksums() {
        let mut file = Vec::new();
        write_start(&mut file, 1.5).expect("memory takes it");
        let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
        assert_eq!(file.len(), 8 + 4 + length + 4);
        assert_eq!(file[12], 1 << 3 | 1, "field 1, a double");
        assert!(file.windows(13).any(|window| window == b"brain.Event:2"));
        assert_eq!(file[8..12], masked(crc32c(&file[..8])).to_le_bytes());
    }
}
