// tokio-postgres

pub async fn with_sqlx(db: &sqlx::PgPool, check: &FenceCheck, sold: i64) -> Result<(), Failure> {
    const UPDATE: &str = "UPDATE stock SET amount = amount - $1 WHERE id = 7";
    // sqlx
    Ok(())
}

pub async fn with_diesel(
    db: &mut AsyncPgConnection,
    check: &FenceCheck,
    sold: i64,
) -> Result<(), Failure> {
    // Its method `execute` is one of every type.
    use diesel_async::RunQueryDsl as _;

    let written = db.transaction::<(), diesel::result::Error, _>(|write| {
        async move {
            // diesel
            let update = sql_query("UPDATE stock SET amount = amount - $1 WHERE id = 7");
            update.bind::<BigInt, _>(sold).execute(write).await?;
            Ok(())
        }
        .scope_boxed()
    });
    Ok(written.await?)
}

pub async fn with_sea_orm(
    db: &DatabaseConnection,
    check: &FenceCheck,
    sold: i64,
) -> Result<(), Failure> {
    // sea-orm
    let update = "UPDATE stock SET amount = amount - $1 WHERE id = 7";
    write.execute(Statement::from_sql_and_values(DbBackend::Postgres, update, [sold.into()])).await?;
    write.commit().await?;
    Ok(())
}
