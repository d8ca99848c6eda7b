//! Prints the definition of the WebApp resource.

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{}", serde_saphyr::to_string(&steersman_webapp::crd())?);
    Ok(())
}
