//! The data sets, in a directory that the user names.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use eigenveil_central::Rows;
use eigenveil_shared::{
    Error, Result, error,
    preprocess::{Norm, Preprocessing, Row},
};
use eigenveil_tables::npy;
use nalgebra::DMatrix;

/// Where to get each file.
const SOURCES: &str = "\
allaml.npy: GitHub jundongl/scikit-feature, skfeature/data/ALLAML.mat, as float32
colon.npy: GitHub jundongl/scikit-feature, skfeature/data/colon.mat, as float32
isolet.npy: GitHub jundongl/scikit-feature, skfeature/data/Isolet.mat, as float32
lung_small.npy: GitHub jundongl/scikit-feature, skfeature/data/lung_small.mat, as float32
arcene.npy: GitHub jundongl/scikit-feature, skfeature/data/arcene.mat, as float32
pcmac.npy: GitHub jundongl/scikit-feature, skfeature/data/PCMAC.mat, as uint8
a9a.npy: LIBSVM data, a9a, features as 123 columns of 0 and 1, uint8
mnist_train.npy: MNIST, the 60,000 training pictures as 784 columns, uint8
mnist_t10k.npy: MNIST, its 10,000 test pictures as 784 columns, uint8
cifar10_test2500.npy: CIFAR-10, 2,500 of its test pictures as 3,072 columns, uint8
breast_cancer.npy: scikit-learn, sklearn.datasets.load_breast_cancer, as float32
digits.npy: scikit-learn, sklearn.datasets.load_digits, as float32 (also examples/data)
covtype15k.npy: UCI Covertype, 15,000 of its rows without the class, 54 columns, float32
keggundirected.npy: GitHub treforevans/uci_datasets, keggundirected without the target, float32
popres_pcs.npy: GitHub NovembreLab/Novembre_etal_2008_misc, the 20 smartpca coordinates
popres_eigenvalues.npy: GitHub NovembreLab/Novembre_etal_2008_misc, smartpca's eigenvalues, n x 1
popres_labels.csv: GitHub NovembreLab/Novembre_etal_2008_misc, files/PCA.txt, with longitude and latitude";

pub(crate) type RawRows = Arc<Vec<Row>>;

/// The data directory; each file is read once.
#[derive(Default)]
pub struct Data {
    directory: Option<PathBuf>,
    read: Mutex<BTreeMap<String, RawRows>>,
}

impl Data {
    /// Reads from this directory; without one no file is found.
    pub fn new(directory: Option<&Path>) -> Self {
        Self {
            directory: directory.map(Path::to_owned),
            read: Mutex::default(),
        }
    }

    /// Fails unless all files of the exhibit with this identifier are there.
    ///
    /// # Errors
    /// `not-found`, naming the missing files and where to get them.
    pub fn require(&self, exhibit: &str, files: &[&'static str]) -> Result<()> {
        let missing: Vec<&str> = files
            .iter()
            .copied()
            .filter(|file| !self.has(file))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let location = match &self.directory {
            None => "give their directory with --data".to_owned(),
            Some(directory) => format!("not in {}", directory.display()),
        };
        let sources: Vec<String> = missing
            .iter()
            .map(|file| {
                let known = |line: &&str| line.split(':').next() == Some(*file);
                format!("\n  {}", SOURCES.lines().find(known).unwrap_or(file))
            })
            .collect();
        Err(error!(
            NotFound,
            "{exhibit} needs {} ({location}); a .npy file is n x p:{}",
            missing.join(", "),
            sources.concat()
        ))
    }

    fn path(&self, file: &str) -> Option<PathBuf> {
        self.directory
            .as_ref()
            .map(|directory| directory.join(file))
    }

    pub(crate) fn has(&self, file: &str) -> bool {
        self.path(file).is_some_and(|path| path.is_file())
    }

    pub(crate) fn bytes(&self, file: &str) -> Result<Vec<u8>> {
        let unreadable = |why: String| error!(NotFound, "cannot read {file}: {why}");
        let path = self
            .path(file)
            .ok_or_else(|| unreadable("give its directory with --data".to_owned()))?;
        std::fs::read(path).map_err(|error| unreadable(error.to_string()))
    }

    pub(crate) fn raw(&self, file: &str) -> Result<RawRows> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rows) = read.get(file) {
            return Ok(Arc::clone(rows));
        }
        let rows: RawRows = Arc::new(npy_rows(file, &self.bytes(file)?)?);
        read.insert(file.to_owned(), Arc::clone(&rows));
        Ok(rows)
    }
}

pub(crate) fn prepared(raw: &[Row], norm: Norm) -> Result<Rows> {
    let preprocessing = Preprocessing::new(raw.first().map_or(0, |row| row.values().len()), norm);
    let preprocessor = preprocessing.preprocessor()?;
    Rows::collect(raw.iter().map(|row| preprocessor.prepare_features(row)))
}

/// Rows as the columns of a `p × n` matrix.
pub(crate) fn as_columns(rows: &Rows) -> DMatrix<f64> {
    let values = rows.iter().flat_map(|row| row.as_slice().iter().copied());
    DMatrix::from_iterator(rows.dimension(), rows.n(), values)
}

fn npy_rows(file: &str, bytes: &[u8]) -> Result<Vec<Row>> {
    let array = npy::read(bytes).map_err(|error| {
        let detail = error.detail();
        Error::new(error.code(), format!("{file}: {detail}"))
    })?;
    let width = array.columns.max(1);
    let rows = array.values.chunks(width);
    Ok(rows.map(|row| Row::new(row.to_vec())).collect())
}
