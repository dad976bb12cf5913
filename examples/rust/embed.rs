//! The sentence embedding of a list of token ids, computed by an exported model through its C interface.
//!
//! ```sh
//! tilewright compile all-MiniLM-L6-v2.onnx -o libminilm.so --header minilm.h
//! rustc -O --edition 2021 embed.rs -L. -lminilm -C link-arg=-Wl,-rpath,'$ORIGIN'
//! ./embed 101 7592 2088 102
//! ```

use std::ffi::{c_char, c_int, c_void, CStr};
use std::process::ExitCode;
use std::ptr;

/// What of `minilm.h` is used here.
mod ffi {
    use super::*;

    #[repr(C)]
    pub struct Minilm {
        _private: [u8; 0],
    }

    #[repr(C)]
    pub struct Options {
        pub struct_bytes: usize,
        pub threads: u32,
        pub concurrency: u32,
        pub weights_path: *const c_char,
        pub level: *const c_char,
        pub workspace: *mut c_void,
        pub workspace_bytes: usize,
    }

    extern "C" {
        pub fn minilm_create(options: *const Options, out_model: *mut *mut Minilm) -> c_int;
        pub fn minilm_destroy(model: *mut Minilm);
        pub fn minilm_run_dims(
            model: *mut Minilm,
            dims: *const i64,
            inputs: *const *const c_void,
            outputs: *const *mut c_void,
        ) -> c_int;
        pub fn minilm_output_shape(model: *mut Minilm, dims: *const i64, output: u32, out_shape: *mut i64) -> c_int;
        pub fn minilm_error() -> *const c_char;
    }
}

fn check(status: c_int) -> Result<(), String> {
    if status == 0 {
        return Ok(());
    }
    // The text belongs to this thread and ends with a zero.
    Err(unsafe { CStr::from_ptr(ffi::minilm_error()) }.to_string_lossy().into_owned())
}

/// A loaded model; calls from several threads are independent.
struct Model(*mut ffi::Minilm);

unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Model {
    fn new(threads: u32) -> Result<Self, String> {
        let options = ffi::Options {
            struct_bytes: std::mem::size_of::<ffi::Options>(),
            threads,
            concurrency: 0,
            weights_path: ptr::null(),
            level: ptr::null(),
            workspace: ptr::null_mut(),
            workspace_bytes: 0,
        };
        let mut model = ptr::null_mut();
        check(unsafe { ffi::minilm_create(&options, &mut model) })?;
        Ok(Model(model))
    }

    /// The embedding of one sentence.
    fn embed(&self, ids: &[i64]) -> Result<Vec<f32>, String> {
        let dims = [1, ids.len() as i64];
        let mask = vec![1i64; ids.len()];
        let mut shape = [0i64; 3];
        check(unsafe { ffi::minilm_output_shape(self.0, dims.as_ptr(), 1, shape.as_mut_ptr()) })?;
        let width = shape[2] as usize;
        let mut embedding = vec![0f32; width];
        let mut states = vec![0f32; ids.len() * width];
        let inputs = [ids.as_ptr().cast::<c_void>(), mask.as_ptr().cast()];
        let outputs = [embedding.as_mut_ptr().cast::<c_void>(), states.as_mut_ptr().cast()];
        check(unsafe { ffi::minilm_run_dims(self.0, dims.as_ptr(), inputs.as_ptr(), outputs.as_ptr()) })?;
        Ok(embedding)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        unsafe { ffi::minilm_destroy(self.0) }
    }
}

fn run() -> Result<(), String> {
    let ids: Result<Vec<i64>, _> = std::env::args().skip(1).map(|word| word.parse()).collect();
    let ids = ids.map_err(|_| "expected token ids, which are whole numbers".to_string())?;
    for value in Model::new(1)?.embed(&ids)? {
        println!("{value:.9e}");
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("embed: {text}");
            ExitCode::FAILURE
        }
    }
}
