//! The tokens of a corpus in a file, with an index of its documents beside it: written once, then read by position.
//!
//! Both files are named after their inputs (names, sizes and modification times of the files, the tokenizer, the
//! column), so any change gives new files. Each is renamed into place whole, the index last: a pair that does not match
//! was cut short by a kill or by someone else, and is rebuilt. Two runs that build the same file at the same time write
//! the same bytes.

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use headroom_record::atomic::FileError;
use headroom_record::reading;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::spec::TokenWidth;
use super::super::synthetic::small_vocabulary;
use super::super::tokenized::{Cutter, Stop, write_whole};
use super::super::{BYTE_IDS, DEFAULT_TEXT_COLUMN, DataError, SourceSettings};
use super::documents::{self, Take};
use super::files::{self, DataFile};

/// Bump when the layout of the files or the tokenization changes.
const LAYOUT: u32 = 1;

/// The byte after a document: text never contains it.
const END_BYTE: u8 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    pub first_token: u64,
    pub text_bytes: u64,
}

#[derive(Debug)]
pub struct Kept {
    pub path: PathBuf,
    pub width: TokenWidth,
    pub documents: Vec<Document>,
    /// Description of the tokens.
    pub unit: String,
    /// Vocabulary size that they need.
    pub ids: usize,
    tokens: u64,
}

/// The index's first line; (first token, bytes of text) of every document follow, as u64.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Header {
    layout: u32,
    key: String,
    tokens: u64,
    documents: u64,
}

impl Kept {
    pub fn open(given: &Path, files: &[DataFile], settings: &SourceSettings) -> Result<Kept, DataError> {
        let column = settings.corpus.text_column.as_deref();
        if let Some(column) = column.filter(|_| !files.iter().any(|file| file.is_jsonl)) {
            return Err(DataError::ColumnWithoutJsonl { path: given.to_path_buf(), column: column.into() });
        }
        let column = column.unwrap_or(DEFAULT_TEXT_COLUMN);
        let cut = Cut::open(settings)?;
        let Some(cache) = &settings.corpus.cache else { return Err(DataError::NoCache { path: given.to_path_buf() }) };
        let key = key(files, &cut, column)?;
        let path = cache.join(format!("{}.tokens", &key[..24]));
        let index = path.with_extension("index");
        if let Some(documents) = read_index(&path, &index, &key, cut.width()) {
            return Ok(Kept::of(path, &cut, documents));
        }
        fs::create_dir_all(cache).map_err(FileError::new("make the folder", cache))?;
        if let Some(tell) = settings.corpus.tell {
            let bytes: u64 = files.iter().map(|file| file.bytes).sum();
            tell(&format!(
                "tokenizing {} files ({bytes} bytes) into {}, once; kept in {}",
                files.len(),
                cut.unit(),
                cache.display()
            ));
        }
        let (documents, tokens) = write_whole(&path, |writer| cut_all(files, column, &cut, writer))?;
        for file in files {
            if files::about(&file.path)? != *file {
                // The key is that of the old files, but the tokens may be from the new ones.
                let _ = fs::remove_file(&path);
                return Err(DataError::Changed { path: file.path.clone() });
            }
        }
        let header = Header { layout: LAYOUT, key, tokens, documents: documents.len() as u64 };
        write_whole(&index, |writer| {
            writeln!(writer, "{}", serde_json::to_string(&header).map_err(std::io::Error::from)?)?;
            for document in &documents {
                writer.write_all(&document.first_token.to_le_bytes())?;
                writer.write_all(&document.text_bytes.to_le_bytes())?;
            }
            Ok(())
        })?;
        Ok(Kept::of(path, &cut, (documents, tokens)))
    }

    fn of(path: PathBuf, cut: &Cut, (documents, tokens): (Vec<Document>, u64)) -> Kept {
        Kept { path, width: cut.width(), documents, unit: cut.unit(), ids: cut.ids(), tokens }
    }

    /// Start of the document that holds this token.
    pub fn document_before(&self, token: u64) -> u64 {
        let after = self.documents.partition_point(|document| document.first_token <= token);
        after.checked_sub(1).map_or(0, |at| self.documents[at].first_token)
    }

    /// Averaged over the documents that the tokens belong to.
    pub fn bytes_per_token(&self, tokens: &Range<u64>) -> Option<f64> {
        let end = |at: usize| self.documents.get(at + 1).map_or(self.tokens, |next| next.first_token);
        let touched = |at: &usize| self.documents[*at].first_token < tokens.end && end(*at) > tokens.start;
        let (mut bytes, mut count) = (0.0, 0);
        for at in (0..self.documents.len()).filter(touched) {
            bytes += self.documents[at].text_bytes as f64;
            count += end(at) - self.documents[at].first_token;
        }
        (count > 0).then(|| bytes / count as f64)
    }
}

/// How text becomes tokens.
enum Cut {
    Bytes,
    Tokenizer(Box<Cutter>),
}

impl Cut {
    fn open(settings: &SourceSettings) -> Result<Cut, DataError> {
        Ok(match &settings.tokenizer {
            Some(tokenizer) => Cut::Tokenizer(Box::new(Cutter::open(tokenizer, settings.vocab_size)?)),
            None => {
                small_vocabulary("text with byte tokens", BYTE_IDS, settings.vocab_size)?;
                Cut::Bytes
            }
        })
    }

    fn width(&self) -> TokenWidth {
        match self {
            Cut::Bytes => TokenWidth::U8,
            Cut::Tokenizer(cutter) if cutter.needed() <= 1 << 16 => TokenWidth::U16,
            Cut::Tokenizer(_) => TokenWidth::U32,
        }
    }

    fn ids(&self) -> usize {
        match self {
            Cut::Bytes => BYTE_IDS,
            Cut::Tokenizer(cutter) => cutter.needed(),
        }
    }

    fn unit(&self) -> String {
        match self {
            Cut::Bytes => "byte tokens".into(),
            Cut::Tokenizer(cutter) => match cutter.end_of_document() {
                Some((_, name)) => format!("tokens ({name} after each document)"),
                None => "tokens".into(),
            },
        }
    }
}

fn key(files: &[DataFile], cut: &Cut, column: &str) -> Result<String, DataError> {
    let mut digest = Sha256::new();
    // Prefix everything with its length, so that two different lists never hash alike.
    let mut add = |bytes: &[u8]| {
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    };
    add(&LAYOUT.to_le_bytes());
    match cut {
        Cut::Bytes => add(b"bytes"),
        Cut::Tokenizer(cutter) => add(cutter.definition()),
    }
    add(column.as_bytes());
    for file in files {
        let whole = fs::canonicalize(&file.path).map_err(FileError::new("look at", &file.path))?;
        add(whole.as_os_str().as_encoded_bytes());
        add(&file.bytes.to_le_bytes());
        add(&file.changed_nanos.to_le_bytes());
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The index of a corpus has a row per document; this is a billion of them.
const MOST_INDEX_BYTES: u64 = 32 << 30;

/// The documents and the token count, if both files are present and whole.
fn read_index(tokens: &Path, index: &Path, key: &str, width: TokenWidth) -> Option<(Vec<Document>, u64)> {
    let bytes = reading::read(index, MOST_INDEX_BYTES).ok()?;
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let header: Header = serde_json::from_slice(&bytes[..end]).ok()?;
    let rows = &bytes[end + 1..];
    let wanted = (LAYOUT, key, header.documents.checked_mul(16)?, header.tokens.checked_mul(width.bytes() as u64)?);
    let found = (header.layout, header.key.as_str(), rows.len() as u64, fs::metadata(tokens).ok()?.len());
    if wanted != found {
        return None;
    }
    let number = |encoded: &[u8]| encoded.try_into().map(u64::from_le_bytes).ok();
    let document = |row: &[u8]| Some(Document { first_token: number(&row[..8])?, text_bytes: number(&row[8..])? });
    let documents: Vec<Document> = rows.chunks_exact(16).map(document).collect::<Option<_>>()?;
    // Each document begins after the one before it and before the end of the tokens.
    let begins = |at: usize| documents.get(at).map_or(header.tokens, |document| document.first_token);
    let in_order = (0..documents.len()).all(|at| begins(at) < begins(at + 1));
    in_order.then_some((documents, header.tokens))
}

fn cut_all(files: &[DataFile], column: &str, cut: &Cut, writer: &mut dyn Write) -> Result<(Vec<Document>, u64), Stop> {
    let mut taken = Taken { cut, writer, documents: vec![], tokens: 0, first_token: 0, text_bytes: 0 };
    for file in files {
        documents::read(file, column, &mut taken)?;
    }
    Ok((taken.documents, taken.tokens))
}

struct Taken<'a> {
    cut: &'a Cut,
    writer: &'a mut dyn Write,
    documents: Vec<Document>,
    tokens: u64,
    /// The first token of the document being read.
    first_token: u64,
    text_bytes: u64,
}

impl Taken<'_> {
    fn token(&mut self, id: u32) -> Result<(), Stop> {
        self.writer.write_all(&id.to_le_bytes()[..self.cut.width().bytes()])?;
        self.tokens += 1;
        Ok(())
    }
}

impl Take<Stop> for Taken<'_> {
    fn text(&mut self, piece: &str) -> Result<(), Stop> {
        self.text_bytes += piece.len() as u64;
        match self.cut {
            Cut::Bytes => {
                self.writer.write_all(piece.as_bytes())?;
                self.tokens += piece.len() as u64;
            }
            Cut::Tokenizer(cutter) => {
                for id in cutter.cut(piece)? {
                    self.token(id)?;
                }
            }
        }
        Ok(())
    }

    /// Ends a document. One without text is dropped.
    fn end(&mut self) -> Result<(), Stop> {
        if self.tokens > self.first_token {
            match self.cut {
                Cut::Bytes => self.token(END_BYTE.into())?,
                Cut::Tokenizer(cutter) => {
                    if let Some((id, _)) = cutter.end_of_document() {
                        self.token(id)?;
                    }
                }
            }
            self.documents.push(Document { first_token: self.first_token, text_bytes: self.text_bytes });
        }
        (self.first_token, self.text_bytes) = (self.tokens, 0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENTS: [Document; 3] = [
        Document { first_token: 0, text_bytes: 30 },
        Document { first_token: 10, text_bytes: 5 },
        Document { first_token: 20, text_bytes: 100 },
    ];

    fn kept(documents: &[Document], tokens: u64) -> Kept {
        let (path, width) = (PathBuf::from("a.tokens"), TokenWidth::U16);
        Kept { path, width, documents: documents.to_vec(), unit: "tokens".into(), ids: 9, tokens }
    }

    #[test]
    fn a_token_is_of_the_document_that_began_last() {
        let found = [0, 9, 10, 11, 19, 20, 39].map(|token| kept(&DOCUMENTS, 40).document_before(token));
        assert_eq!(found, [0, 0, 10, 10, 10, 20, 20]);
        assert_eq!(kept(&[], 0).document_before(5), 0);
    }

    #[test]
    fn bytes_are_those_of_the_documents_that_tokens_belong_to() {
        let of = |range: Range<u64>| kept(&DOCUMENTS, 40).bytes_per_token(&range);
        assert_eq!([of(0..10), of(3..4), of(10..20), of(20..40)], [3.0, 3.0, 0.5, 5.0].map(Some));
        assert_eq!([of(9..11), of(0..40), of(19..21)], [35.0 / 20.0, 135.0 / 40.0, 105.0 / 30.0].map(Some));
        assert_eq!((of(40..50), kept(&[], 0).bytes_per_token(&(0..10))), (None, None));
    }

    #[test]
    fn an_index_that_does_not_fit_its_tokens_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let (tokens, index) = (folder.path().join("a.tokens"), folder.path().join("a.index"));
        let read = |header: Header, documents: &[Document], bytes: usize| {
            let mut text = serde_json::to_vec(&header).unwrap();
            text.push(b'\n');
            for document in documents {
                text.extend(document.first_token.to_le_bytes());
                text.extend(document.text_bytes.to_le_bytes());
            }
            fs::write(&index, text).unwrap();
            fs::write(&tokens, vec![0; bytes]).unwrap();
            read_index(&tokens, &index, "key", TokenWidth::U16)
        };
        let header = |tokens| Header { layout: LAYOUT, key: "key".into(), tokens, documents: 3 };
        assert_eq!(read(header(40), &DOCUMENTS, 80), Some((DOCUMENTS.to_vec(), 40)));
        assert_eq!(read(header(40), &DOCUMENTS, 79), None);
        assert_eq!(read(header(40), &DOCUMENTS[..2], 80), None);
        assert_eq!(read(Header { layout: LAYOUT + 1, ..header(40) }, &DOCUMENTS, 80), None);
        assert_eq!(read(Header { key: "other".into(), ..header(40) }, &DOCUMENTS, 80), None);
        // Documents must begin one after the other, and before the end.
        let [first, second, third] = DOCUMENTS;
        assert_eq!(read(header(40), &[second, first, third], 80), None);
        assert_eq!(read(header(40), &[first, second, second], 80), None);
        assert_eq!(read(header(20), &DOCUMENTS, 40), None);
        assert_eq!(read(header(21), &DOCUMENTS, 42), Some((DOCUMENTS.to_vec(), 21)));
    }
}
