-- Between tables of a pipeline use SQL, select and where: after withColumn or drop Spark loses
-- sight of what depends on what.
CREATE MATERIALIZED VIEW events_per_minute AS
SELECT date_trunc('MINUTE', timestamp) AS minute, count(*) AS events
FROM events
GROUP BY date_trunc('MINUTE', timestamp)
